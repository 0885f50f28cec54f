from __future__ import annotations

from kintune.service.secrets import hash_of, looks_like_a_token, new_token


def test_no_two_tokens_are_alike_and_their_text_is_not_kept() -> None:
    tokens = [new_token() for _ in range(50)]
    assert len({token.text for token in tokens}) == 50
    for token in tokens:
        assert looks_like_a_token(token.text)
        assert token.hash == hash_of(token.text)
        assert token.text not in token.hash
        assert token.text.startswith(token.hint)
        assert len(token.hint) < 12


def test_what_is_no_token_is_not_looked_up() -> None:
    for text in ("", "kt_", "kt_short", "x" * 46, new_token().text + "=", "kt_" + "é" * 43):
        assert not looks_like_a_token(text)
