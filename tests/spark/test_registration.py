"""How Spark comes by the data source, and what importing it costs those who do not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hocket.errors import WrongType
from tests.support.spark import failure_of, fill, load


def in_a_new_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded_after(statement: str) -> set[str]:
    names = "('pyspark', 'pyarrow', 'pandas', 'numpy')"
    return set(
        in_a_new_python(
            f"import sys; {statement}; print(*(n for n in {names} if n in sys.modules))"
        ).split()
    )


@pytest.mark.parametrize("statement", ["import hocket", "import hocket.spark"])
def test_importing_the_package_loads_neither_spark_nor_arrow(statement):
    assert loaded_after(statement) == set()


def test_what_spark_imports_to_look_for_sources_loads_nothing_beyond_spark(topic):
    ours = loaded_after("import pyspark_hocket; pyspark_hocket.DefaultSource.name()")
    assert ours <= loaded_after("import pyspark.sql.datasource, pyspark.sql.types")


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_it_says_what_to_install(missing):
    use = {
        "pyspark": "hocket.spark.HocketDataSource",
        "pyarrow": "hocket.spark.HocketDataSource({'servers': 'h', 'subscribe': 't'})"
        ".reader(hocket.spark.HocketDataSource({'servers': 'h', 'subscribe': 't'}).schema())",
    }[missing]
    said = in_a_new_python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"import hocket.spark\ntry:\n    {use}\nexcept ImportError as error:\n    print(error)"
    )
    assert "pip install 'hocket[spark]'" in said


def test_unknown_names_of_the_package_are_attribute_errors():
    import hocket.spark

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hocket.spark.nothing  # noqa: B018
    assert callable(hocket.spark.session.session)
    assert callable(hocket.spark.java.problem)


def test_it_is_found_without_registration_and_may_be_registered(spark, broker, client, topic):
    import hocket.spark

    client.create_topic(topic)
    fill(client, topic, 3)
    assert load(spark, broker, topic).count() == 3
    hocket.spark.register(spark)
    assert load(spark, broker, topic).count() == 3


def test_another_schema_is_refused_with_words(spark, broker, client, topic):
    from hocket.spark.columns import check_user_schema, spark_schema

    client.create_topic(topic)
    reader = spark.read.format("hocket").option("servers", broker.address).schema("value string")
    said = failure_of(lambda: reader.option("subscribe", topic).load().collect())
    assert "the schema of a topic is fixed" in said
    assert "struct<key:binary,value:binary,topic:string" in said
    columns = ("key", "value")
    check_user_schema(spark_schema(columns), columns)
    with pytest.raises(WrongType, match=r"Leave out \.schema"):
        check_user_schema(spark_schema(("value", "key")), columns)
