"""A small shop whose time goes to Python and to native code alike, for the picture in README.md. Ends after 60 seconds."""
import hashlib
import json
import re
import sqlite3
import time
import zlib

GOODS = ["apple", "bread", "cheese", "dates", "eggs", "figs"]


class Shop:
    def __init__(self):
        self.stock = sqlite3.connect(":memory:")
        self.stock.execute("create table orders (number integer, item text, amount integer)")

    def order(self, number):
        basket = [{"item": GOODS[(number + at) % 6], "amount": at + number % 7} for at in range(40)]
        request = json.dumps({"customer": number, "basket": basket})
        self.pay(self.parse(request))
        self.remember(request)

    def parse(self, request):
        order = json.loads(request)
        order["basket"] = [line for line in order["basket"] if re.fullmatch("[a-z]+", line["item"])]
        return order

    def pay(self, order):
        lines = sorted(order["basket"], key=self.price)
        total = sum(self.price(line) for line in lines)
        rows = [(order["customer"], line["item"], line["amount"]) for line in lines]
        self.stock.executemany("insert into orders values (?, ?, ?)", rows)
        return hashlib.sha256(str(total).encode() * 2000).hexdigest()

    def price(self, line):
        price = 0
        for letter in line["item"]:
            price += ord(letter) * line["amount"] % 11
        return price

    def remember(self, request):
        return zlib.compress(request.encode() * 6)

    def report(self):
        query = "select item, sum(amount), count(*) from orders group by item order by 2"
        rows = self.stock.execute(query).fetchall()
        self.stock.execute("delete from orders")
        return rows


def main():
    shop, end = Shop(), time.monotonic() + 60
    while time.monotonic() < end:
        for number in range(60):
            shop.order(number)
        shop.report()


main()
