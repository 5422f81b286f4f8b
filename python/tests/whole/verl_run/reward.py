"""A reward for verl's `custom_reward_function`."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """The share of the words that are even numbers: differs within nearly each group."""
    words = solution_str.split()
    return sum(word.isdigit() and int(word) % 2 == 0 for word in words) / max(len(words), 1)
