"""Labels: the positive one of two classes."""

import numpy as np
import pytest

from cavity.data.labels import positive_class


@pytest.mark.parametrize(
    ("classes", "counts", "positive"),
    [
        ([False, True], [1, 9], 1),
        (["FALSE", "true "], [1, 9], 1),
        ([0, 1], [1, 9], 1),
        ([0.0, 1.0], [1, 9], 1),
        ([-1, 1], [1, 9], 1),
        (["+", "-"], [9, 1], 0),
        (["neg", "pos"], [1, 9], 1),
        (["N", "Y"], [1, 9], 1),
        ([1, 2], [1, 9], 0),
        ([1, 2], [9, 1], 1),
        (["F", "M"], [9, 1], 1),
        (["late", "on time"], [5, 5], 1),
    ],
)
def test_positive_class_is_the_word_that_says_so_or_the_rarer_one(classes, counts, positive):
    assert positive_class(np.array(classes), np.array(counts)) == positive


def test_positive_class_is_defined_for_two():
    with pytest.raises(ValueError, match="there are 3 classes"):
        positive_class(np.arange(3), np.ones(3))
