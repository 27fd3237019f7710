"""The clock that runs in the tuner's turns only."""

from benchmarks.engine.clocks import PausableClock


class Running:
    def __init__(self) -> None:
        self.at_s = 500.0

    def __call__(self) -> float:
        return self.at_s


def test_time_between_turns_does_not_exist() -> None:
    running = Running()
    clock = PausableClock(1000.0, running)
    running.at_s += 50
    assert clock.now_s() == 1000.0
    clock.resume()
    running.at_s += 7
    assert clock.now_s() == 1007.0
    clock.pause()
    running.at_s += 50
    assert clock.now_s() == 1007.0
    clock.resume()
    running.at_s += 3
    assert clock.now_s() == 1010.0


def test_pausing_and_resuming_twice_is_once() -> None:
    running = Running()
    clock = PausableClock(0.0, running)
    clock.resume()
    running.at_s += 2
    clock.resume()
    running.at_s += 2
    clock.pause()
    clock.pause()
    assert clock.now_s() == 4.0
