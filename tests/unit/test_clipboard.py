"""Copying through GNU screen: in pieces it takes, and only there."""

from __future__ import annotations

import base64

from oelm_tui.clipboard import SCREEN_TAKES, within_screen


def test_screen_gets_the_text_in_pieces_that_join_to_one_sequence():
    text = "表 " * 500
    written = within_screen(text, {"STY": "1.pts"})
    pieces = [piece.removeprefix("\x1bP") for piece in written.split("\x1b\\")[:-1]]
    assert max(map(len, pieces)) <= SCREEN_TAKES
    whole = "".join(pieces)
    assert base64.b64decode(whole.removeprefix("\x1b]52;c;").removesuffix("\a")).decode() == text


def test_elsewhere_the_terminal_itself_is_enough():
    assert within_screen("x", {}) == ""
