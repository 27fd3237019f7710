"""A count and what is counted, in words: one of a thing is not several."""


def counted(count: float, one: str, several: str = "") -> str:
    """`1 minute`, `2 minutes`: as a sentence says it.

    Args:
        count: shown as a whole number.
        one: what follows where the number is 1, such as `minute`, `more minute`, `pod is`.
        several: what follows any other number; empty: `one` and an s.
    """
    number = f"{count:.0f}"
    return f"{number} {one if number == '1' else several or f'{one}s'}"
