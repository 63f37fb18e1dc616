"""Results of M-GURU, M-GURU-S2 and Crammer and Singer's support vector machines (thesis, chapter 5)."""

from gaussguru.experiments import problems, search
from gaussguru.experiments.results import ResultsTable

MULTICLASS = ResultsTable(
    name="multiclass",
    title="M-GURU, M-GURU-S2 and SVM, several classes",
    problems=problems.MULTICLASS,
    methods={
        "M-GURU (exact)": lambda _: search.exact,
        "M-GURU (sgd)": lambda _: search.stochastic("sgd", every=2),
        "M-GURU-S2 (sgd2)": lambda _: search.stochastic("sgd2", every=2),
        "SVM": lambda _: search.joint_svm,
    },
    theirs=("M-GURU", "M-GURU-S2", "SVM"),
    printed={
        "toy-3": (98.67, 98.0, 98.67),
        "toy-4": (96.0, 96.0, 96.0),
        "usps-3-5-8": (94.67, 94.57, 94.857),
        "usps-0-9": (92.78, 92.7, 92.85),
        "splice": (89.08, 89.08, 89.5),
        "wine": (92.31, 91.03, 92.31),
    },
    repeats={name: 3 if name == "usps-0-9" else 10 for name in problems.MULTICLASS},
)
