"""Results of GURU and of support vector machines on two classes (thesis, chapter 2), without and with noise."""

from gaussguru.experiments import problems, search
from gaussguru.experiments.results import ResultsTable

BINARY = ResultsTable(
    name="binary",
    title="GURU and SVM, two classes",
    problems=problems.BINARY,
    methods={
        "GURU (exact)": lambda _: search.exact,
        "GURU (sgd)": lambda _: search.stochastic("sgd"),
        "SVM": lambda _: search.linear_svm,
    },
    theirs=("GURU", "SVM"),
    printed={
        "toy-a": (92.5, 92.5),
        "toy-b": (92.0, 92.0),
        "ionosphere": (82.24, 79.61),
        "pima": (67.52, 67.31),
        "splice-1-2": (93.39, 92.44),
        "usps-3-5": (95.57, 95.86),
        "usps-5-8": (97.71, 98.0),
        "usps-7-9": (97.57, 97.43),
    },
    repeats={name: 50 if problem.toy else 10 for name, problem in problems.BINARY.items()},
    noisy=("GURU (exact)", "SVM"),
)
