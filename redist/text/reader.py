"""Read text from left to right, and say at which character it went wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redist.errors import ParseError

NUMBER = re.compile(r"[0-9]+")


@dataclass(slots=True)
class Reader:
    """A position in a text; every method either moves on or raises at the right character.

    >>> reader = Reader("8 * q")
    >>> reader.number("expected a number"), reader.accept("*"), reader.ahead()
    (8, True, 'q')
    """

    text: str
    at: int = 0

    def fail(self, reason: str, at: int | None = None) -> ParseError:
        """The error at a character; here if none is given."""
        return ParseError(self.text, self.at if at is None else at, reason)

    def skip_space(self) -> None:
        """Move to the next character that is not a space."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, symbol: str) -> bool:
        """Whether the symbol comes next."""
        self.skip_space()
        return self.text.startswith(symbol, self.at)

    def ahead(self) -> str:
        """The next character that is not a space; "" at the end."""
        self.skip_space()
        return self.text[self.at : self.at + 1]

    def accept(self, symbol: str) -> bool:
        """Move behind the symbol if it comes next; whether it did."""
        found = self.peek(symbol)
        self.at += len(symbol) if found else 0
        return found

    def expect(self, symbol: str, reason: str) -> None:
        """Move behind the symbol, which must come next."""
        if not self.accept(symbol):
            raise self.fail(reason)

    def match(self, pattern: re.Pattern[str], reason: str) -> str:
        """Move behind what the pattern matches, and return it."""
        self.skip_space()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.fail(reason)
        self.at = found.end()
        return found[0]

    def number(self, reason: str) -> int:
        """The number that must come next."""
        digits = self.match(NUMBER, reason)
        if len(digits) > 18:
            raise self.fail("expected a number of at most 18 digits", self.at - len(digits))
        return int(digits)
