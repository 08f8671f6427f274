"""Few mixtures of settings in which every two values meet."""

from itertools import combinations, product

from pairs import pairs

SETTINGS = ("abc", "xy", *([(False, True)] * 6))


def test_every_two_values_of_two_settings_are_together_in_a_mixture():
    chosen = pairs(*SETTINGS)
    for (one, ones), (other, others) in combinations(enumerate(SETTINGS), 2):
        assert {(mixture[one], mixture[other]) for mixture in chosen} == set(product(ones, others))


def test_they_are_few_and_the_same_every_time():
    assert len(pairs(*SETTINGS)) < 12
    assert pairs(*SETTINGS) == pairs(*SETTINGS)
