# Spends its time in functions of known kinds, in turns that are short beside any recording.
import json
import re

TEXT = json.dumps([{"id": number, "name": "x%d" % number, "tags": ["a", "b"]} for number in range(200)])


def parse():
    return json.loads(TEXT)


def write(value):
    return json.dumps(value)


def search():
    return len(re.findall(r'"name": "x[0-9]+"', TEXT))


def score(item):
    return sorted(item["tags"], key=lambda tag: tag + item["name"])


def count(limit):
    total = 0
    for number in range(limit):
        total += number * number % 7
    return total


def turn():
    items = parse()
    write(items)
    search()
    [score(item) for item in items]
    count(3000)


print("ready", flush=True)
while True:
    turn()
