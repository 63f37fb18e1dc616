"""The gallery as a story: within each part, examples in the order in which they are best read."""

from pathlib import Path

ORDER = (
    "equal_values", "worse_measurements", "reliability", "posteriors", "mixture_population", "noisier_copies",
    "pool", "calibration", "good_and_poor_samples", "remeasure", "missing_values", "upper_limits",
    "asymmetric_errors", "misstated_errors", "errors_as_columns", "pipeline", "clouds", "adversary",
    "noise_models", "sigma_path", "robustness_curve", "multiclass", "kernel", "displacements",
    "adversarial_digits", "expected_loss", "losses", "own_loss", "convergence",
)  # fmt: skip


class StoryOrder:
    """Sort files by the list above; new ones follow by name."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        name = Path(filename).stem.removeprefix("plot_")
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)

    def __repr__(self):
        return "<StoryOrder>"
