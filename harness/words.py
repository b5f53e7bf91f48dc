"""Text for a person: on one line, bounded, and without what would steer a terminal."""

from __future__ import annotations

import re

from harness.errors import Hung

LONG = 300  # characters of a text that somebody else wrote, where one line must do
MOST = 20_000
"""Characters of such a text that are kept at all: a client may raise the whole of a checkpoint."""

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: object) -> str:
    """The words of `text`, as much of it as `cut` leaves, with single blanks between them."""
    return " ".join(cut(text_of(text)).split())


def cut(text: str, most: int = MOST) -> str:
    """Its beginning and its end where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def text_of(what: object) -> str:
    """`str(what)`; of what cannot even say that, its type. Of a client's object only under a watch: it may spin."""
    try:
        return str(what)
    except Hung:
        raise
    except BaseException as error:
        return f"(a {type(what).__name__} whose text cannot be made: {type(error).__name__})"


def visible(text: str) -> str:
    """Control characters, direction marks and lone surrogates as escapes; line ends and tabs stay."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def quoted(text: object, most: int = LONG) -> str:
    """What a stranger wrote, for use inside one line of ours: visible, and cut after `most` characters."""
    line = visible(one_line(text_of(text)[: 4 * most]))
    return line if len(line) <= most else f"{line[:most]}…"


def told(error: BaseException) -> str:
    """`ValueError: its text`, on one line."""
    text = one_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
