"""Messaging inside one process: byte channels between threads, message queues driven by events."""

from hocket.local.broker import Broker
from hocket.local.broker_manager import BrokerManager
from hocket.local.channel import Channel
from hocket.local.circular_buffer import CircularBuffer
from hocket.local.event_pump import EventPump
from hocket.local.event_queue import EventQueue
from hocket.local.listeners import MessageListener
from hocket.local.message_queue import MessageQueue
from hocket.local.mixed_queue_broker import MixedQueueBroker
from hocket.local.queue_broker import AcceptListener, ConnectListener, QueueBroker
from hocket.local.rendezvous import Rendezvous
from hocket.local.task import Task

__all__ = [
    "AcceptListener",
    "Broker",
    "BrokerManager",
    "Channel",
    "CircularBuffer",
    "ConnectListener",
    "EventPump",
    "EventQueue",
    "MessageListener",
    "MessageQueue",
    "MixedQueueBroker",
    "QueueBroker",
    "Rendezvous",
    "Task",
]
