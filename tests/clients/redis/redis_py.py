"""Numbers by redis-py, with its default options: one by one, and by its pipeline.

    redis_py.py PORT KEY COUNT

Prints each number of the counter in a line of its own, in the order in which they came.
"""

import sys

import redis

PIPELINE = 100


def main(port, key, count):
    client = redis.Redis(port=port)
    assert client.ping()
    numbers = [client.incr(key) for _ in range(count // 2)]
    while len(numbers) < count:
        pipeline = client.pipeline()
        for _ in range(min(PIPELINE, count - len(numbers))):
            pipeline.incr(key)
        numbers.extend(pipeline.execute())
    top = client.incrby(key, 10)
    numbers.extend(range(top - 9, top + 1))
    assert int(client.get(key)) >= top
    one, other = client.execute_command("XUID.BATCH", 2, "@ordered")
    assert int(one) < int(other), (one, other)
    print("\n".join(map(str, numbers)))


main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
