from fathom.adapters.metrics_page import Remembered


def known_after(keys: list[bytes], most_bytes: int) -> int:
    memory: Remembered[bytes, bytes] = Remembered(most_bytes)
    for key in keys:
        memory.keep(key, key)
    return sum(memory.find(key) == key for key in keys)


def test_what_comes_again_stays_and_what_does_not_goes() -> None:
    memory: Remembered[bytes, int] = Remembered(20_000)
    memory.keep(b"again", 1)
    memory.keep(b"never again", 2)
    for other in range(1000):
        memory.keep(b"other %d" % other, 3)
        assert memory.find(b"again") == 1

    assert memory.find(b"never again") is None


def test_no_more_is_kept_than_there_is_room_for_however_long_the_keys_are() -> None:
    short = [b"%04d" % n for n in range(1000)]
    long = [each * 1000 for each in short]

    assert known_after(short, 1 << 20) == 1000
    assert 100 < known_after(short, 100_000) < 400
    assert 10 < known_after(long, 100_000) < 40


def test_what_is_forgotten_takes_no_room() -> None:
    memory: Remembered[bytes, int] = Remembered(20_000)
    memory.keep(b"kept", 1)
    for other in range(1000):
        memory.keep(b"%d" % other, 2)
        memory.forget(b"%d" % other)

    assert memory.find(b"999") is None
    assert memory.younger == {b"kept": 1}


def test_what_is_forgotten_is_not_known_from_long_ago_either() -> None:
    memory: Remembered[bytes, int] = Remembered(2_000)
    memory.keep(b"a", 1)
    for other in range(3):
        memory.keep(b"%d" % other, 2)
    memory.forget(b"a")
    memory.forget(b"never known")

    assert memory.find(b"a") is None
