"""What is created, and with which lot."""

from collections import Counter

from benchmarks.scale.plan import PER_NAMESPACE, Lot, Shares, Timing, lot_of, planned


def lots(size: int, shares: Shares) -> Counter[Lot]:
    return Counter(each.lot for each in planned(size, shares, one_namespace=False))


def test_each_lot_has_its_share_and_the_rest_are_steady() -> None:
    found = lots(200, Shares(rolling=0.1, unschedulable=0.05, refused=0.01))
    assert found == {Lot.ROLLING: 20, Lot.UNSCHEDULABLE: 10, Lot.REFUSED: 2, Lot.STEADY: 168}


def test_a_small_size_has_one_of_each_lot_and_none_of_a_share_of_nothing() -> None:
    assert lots(10, Shares())[Lot.REFUSED] == 1
    assert lots(10, Shares(refused=0.0))[Lot.REFUSED] == 0
    assert lots(1, Shares(1.0, 1.0, 1.0)).total() == 1


def test_names_tell_the_lot_and_none_is_the_beginning_of_another() -> None:
    names = [each.name for each in planned(300, Shares(), one_namespace=True)]
    assert all(lot_of(each.name) is each.lot for each in planned(300, Shares(), one_namespace=True))
    assert len(set(names)) == 300
    assert len({len(name.partition("-")[2]) for name in names}) == 1


def test_namespaces_are_shared_by_ten_or_by_all() -> None:
    many = Counter(each.namespace for each in planned(95, Shares(), one_namespace=False))
    assert sorted(many.values()) == [5, *[PER_NAMESPACE] * 9]
    assert {each.namespace for each in planned(95, Shares(), one_namespace=True)} == {"scale"}


def test_the_window_at_rest_holds_a_look_without_a_sign() -> None:
    assert Timing().rest_seconds > 60
    assert Timing().size_seconds(1000) > Timing().size_seconds(100)
