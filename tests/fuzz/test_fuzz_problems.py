"""Some random problems, the same every time; ``make fuzz`` tries others for half an hour."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.problems import CHOICES, Problem, check, valid

PROBLEMS = 200

problems = st.builds(
    Problem,
    seed=st.integers(0, 2**31 - 1),
    **{name: st.sampled_from(choices) for name, choices in CHOICES.items()},
).map(valid)


@settings(derandomize=True, max_examples=PROBLEMS, deadline=None, database=None)
@given(problems)
def test_what_is_promised_of_a_fit(problem):
    check(problem)
