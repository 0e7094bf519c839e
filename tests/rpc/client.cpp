// A client in C++, from nothing but the schema: `client HOST:PORT TOPIC COUNT`. It publishes one
// record, pushes COUNT more through a stream, receives them all, acknowledges them, and says so.

#include <capnp/ez-rpc.h>
#include <cstdlib>
#include <iostream>
#include <string>

#include "rpc.capnp.h"

using namespace hocket::rpc;

class CountingSink final : public Sink::Server {
 public:
  CountingSink(uint64_t expected, kj::Own<kj::PromiseFulfiller<void>> done)
      : expected(expected), done(kj::mv(done)) {}

  kj::Promise<void> deliver(DeliverContext context) override {
    for (auto record : context.getParams().getBatch().getRecords()) {
      auto value = record.getValue();
      std::string text(reinterpret_cast<const char*>(value.begin()), value.size());
      KJ_REQUIRE(record.getOffset() == next, "a gap", record.getOffset(), next);
      KJ_REQUIRE(text == "record " + std::to_string(next), "not what was sent", text.c_str());
      if (++next == expected) done->fulfill();
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> ended(EndedContext context) override {
    auto params = context.getParams();
    done->reject(KJ_EXCEPTION(FAILED, params.getCode(), params.getMessage()));
    return kj::READY_NOW;
  }

 private:
  uint64_t next = 0;
  uint64_t expected;
  kj::Own<kj::PromiseFulfiller<void>> done;
};

void put(Record::Builder record, uint64_t number) {
  std::string text = "record " + std::to_string(number);
  record.setValue(kj::arrayPtr(reinterpret_cast<const kj::byte*>(text.data()), text.size()));
}

int main(int argc, char* argv[]) {
  capnp::EzRpcClient connection(argv[1]);
  auto& scope = connection.getWaitScope();
  const uint64_t count = std::strtoull(argv[3], nullptr, 10);

  auto login = connection.getMain<Broker>().loginRequest();
  login.setClient("a client in C++");
  auto session = login.send().getSession();  // pipelined: nothing is waited for yet

  auto create = session.createTopicRequest();
  create.setTopic(argv[2]);
  auto topic = create.send().getTopic();

  auto missing = session.deleteTopicRequest();
  missing.setTopic("no-such-topic");
  try {
    missing.send().wait(scope);
    return 1;
  } catch (const kj::Exception& error) {
    std::cout << error.getDescription().cStr() << std::endl;
  }

  auto publish = topic.publishRequest();
  put(publish.initBatch().initRecords(1)[0], 0);
  KJ_REQUIRE(publish.send().wait(scope).getOffset() == 0);

  auto producer = topic.producerRequest().send().wait(scope).getProducer();
  for (uint64_t sent = 1; sent < count;) {
    auto push = producer.pushRequest();
    auto records = push.initBatch().initRecords(std::min<uint64_t>(100, count - sent));
    for (auto record : records) put(record, sent++);
    push.send().wait(scope);  // a stream: waits only while the window is full
  }
  auto ends = producer.flushRequest().send().wait(scope).getEnds();
  KJ_REQUIRE(ends.size() == 1 && ends[0].getOffset() == count);

  auto all = kj::newPromiseAndFulfiller<void>();
  auto subscribe = topic.subscribeRequest();
  subscribe.initOptions().setIndex("everything");
  subscribe.setSink(kj::heap<CountingSink>(count, kj::mv(all.fulfiller)));
  auto subscription = subscribe.send().wait(scope).getSubscription();
  all.promise.wait(scope);

  auto ack = subscription.ackRequest();
  ack.setEnd(count);
  ack.send().wait(scope);
  subscription.commitRequest().send().wait(scope);
  subscription.closeRequest().send().wait(scope);
  std::cout << "received " << count << std::endl;
  return 0;
}
