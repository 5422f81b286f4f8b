def group_index(group: Tensor) -> Tensor:
    """The row of the first response of each response's group, so that any numbers can name groups."""
    values, order = torch.sort(group, stable=True)
    return order[torch.searchsorted(values, group)]


def is_first(index: Tensor) -> Tensor:
    """True for the first response of each group: what has one value a group is counted there."""
    return index == torch.arange(len(index), device=index.device)


def safe_div(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    is_zero = b == 0
    return torch.where(is_zero, 0.0, a / torch.where(is_zero, 1.0, b))


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root, whose gradient at 0 is 0."""
    is_zero = x == 0
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, x).sqrt())


def choose(condition: Tensor, a: float, b: float, dtype: torch.dtype) -> Tensor:
    """One of two numbers."""
    return torch.where(condition, torch.full_like(condition, a, dtype=dtype), b)


def k3(d: Tensor) -> Tensor:
    """exp(-d) - 1 + d, the estimator of the KL that is never negative."""
    return torch.expm1(-d) + d


def last_token(mask: Tensor) -> Tensor:
    """True at the last token of each response that counts."""
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1)


def sum_of(x: Tensor, mask: Tensor | None = None, dim: int | None = None) -> Tensor:
    """The sum of the selected values: of each response's tokens with dim=1."""
    selected = x if mask is None else torch.where(mask, x, 0.0)
    return selected.sum() if dim is None else selected.sum(dim)


def mean_of(x: Tensor, mask: Tensor | None = None, dim: int | None = None) -> Tensor:
    """The mean of the selected values, 0 if there are none."""
    mean = sum_of(x, mask, dim) / sum_of(torch.ones_like(x), mask, dim).clamp(min=1)
    # Equal values have exactly that value as their mean. The gradient is that of the mean, because clamp
    # gives none to a value beyond its bounds.
    exact = mean.clamp(min_of(x, mask, dim), max_of(x, mask, dim))
    return mean + (exact - mean).detach()


def std_of(
    x: Tensor, mask: Tensor | None = None, dim: int | None = None, ddof: int = 1
) -> Tensor:
    """The standard deviation of the selected values, exactly 0 for equal values."""
    mean = mean_of(x, mask, dim)
    rest = x - (mean if dim is None else mean.unsqueeze(dim))
    count = sum_of(torch.ones_like(x), mask, dim)
    return safe_sqrt(sum_of(rest * rest, mask, dim) / (count - ddof).clamp(min=1))


def max_of(x: Tensor, mask: Tensor | None = None, dim: int | None = None) -> Tensor:
    """The largest selected value, 0 if there are none."""
    if mask is None:
        return x.amax() if dim is None else x.amax(dim)
    selected = torch.where(mask, x, -torch.inf)
    largest = selected.amax() if dim is None else selected.amax(dim)
    return torch.where(mask.any() if dim is None else mask.any(dim), largest, 0.0)


def min_of(x: Tensor, mask: Tensor | None = None, dim: int | None = None) -> Tensor:
    """The smallest selected value, 0 if there are none."""
    return -max_of(-x, mask, dim)


def whiten(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Less the mean and divided by the standard deviation (ddof 0) of the selected values."""
    return (x - mean_of(x, mask)) / std_of(x, mask, ddof=0).clamp(min=1e-4)


def quantile_of(x: Tensor, q: float, mask: Tensor | None = None) -> Tensor:
    """The q-quantile of the selected values, interpolated linearly; 0 if there are none."""
    mask = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    values = torch.where(mask, x, torch.inf).flatten().sort().values
    place = q * (mask.sum().to(x.dtype) - 1).clamp(min=0)
    low, high = values.take(place.floor().long()), values.take(place.ceil().long())
    return torch.where(
        mask.any(),
        torch.where(low == high, low, torch.lerp(low, high, place - place.floor())),
        0.0,
    )


def rank_of(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The rank of each value among the selected ones: 0 for the smallest, ties in batch order, NaN last."""
    order = torch.argsort(x.flatten(), stable=True)
    if mask is not None:
        order = order[torch.argsort((~mask.flatten()[order]).long(), stable=True)]
    rank = torch.empty_like(order).scatter(
        0, order, torch.arange(len(order), device=x.device)
    )
    return rank.to(x.dtype).reshape(x.shape)


def group_sum(x: Tensor, index: Tensor, selected: Tensor | None = None) -> Tensor:
    """The sum in each response's group."""
    x = x if selected is None else torch.where(selected, x, 0.0)
    return torch.zeros_like(x).index_add(0, index, x)[index]


def group_size(index: Tensor) -> Tensor:
    """The number of responses in each response's group."""
    return group_sum(torch.ones_like(index), index)


def group_count(x: Tensor, index: Tensor, selected: Tensor | None = None) -> Tensor:
    """The number of values in each response's group."""
    return group_sum(torch.ones_like(x), index, selected)


def group_mean(x: Tensor, index: Tensor, selected: Tensor | None = None) -> Tensor:
    """The mean in each response's group, 0 if nothing is selected."""
    count = group_count(x, index, selected).clamp(min=1)
    mean = group_sum(x, index, selected) / count
    # Equal values have exactly that value as their mean. The gradient is that of the mean, because clamp
    # gives none to a value beyond its bounds.
    exact = mean.clamp(group_min(x, index, selected), group_max(x, index, selected))
    return mean + (exact - mean).detach()


def group_std(
    x: Tensor, index: Tensor, selected: Tensor | None = None, ddof: int = 1
) -> Tensor:
    """The standard deviation in each response's group, exactly 0 for equal values and for a single one."""
    rest = x - group_mean(x, index, selected)
    count = group_count(x, index, selected)
    return safe_sqrt(
        group_sum(rest * rest, index, selected) / (count - ddof).clamp(min=1)
    )


def group_max(x: Tensor, index: Tensor, selected: Tensor | None = None) -> Tensor:
    """The largest value in each response's group, 0 if nothing is selected."""
    x = x if selected is None else torch.where(selected, x, -torch.inf)
    largest = torch.full_like(x, -torch.inf).scatter_reduce(0, index, x, "amax")[index]
    return (
        largest
        if selected is None
        else torch.where(group_count(x, index, selected) > 0, largest, 0.0)
    )


def group_min(x: Tensor, index: Tensor, selected: Tensor | None = None) -> Tensor:
    """The smallest value in each response's group, 0 if nothing is selected."""
    return -group_max(-x, index, selected)


def group_others_mean(
    x: Tensor, index: Tensor, selected: Tensor | None = None
) -> Tensor:
    """The mean of the others in each response's group (leave-one-out), and a single value itself."""
    mean = group_mean(x, index, selected)
    others = group_count(x, index, selected) - 1
    without = mean + safe_div(mean - x, others)
    return without if selected is None else torch.where(selected, without, mean)


def group_others_std(x: Tensor, index: Tensor) -> Tensor:
    """The standard deviation of the others in each response's group, exactly 0 if these are equal."""
    is_other = (index[:, None] == index) & ~torch.eye(
        len(x), dtype=torch.bool, device=x.device
    )
    return std_of(x.expand(len(x), -1), is_other, dim=1)


def group_order(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The responses group by group, in each by x, with ties in batch order and NaN last.

    Also the place of each response there, and the place of the first one of its group.
    """
    order = torch.argsort(x, stable=True)
    order = order[torch.argsort(index[order], stable=True)]
    places = torch.arange(len(x), device=x.device)
    place = torch.empty_like(order).scatter(0, order, places)
    return order, place, torch.searchsorted(index[order], index)


def group_rank(x: Tensor, index: Tensor) -> Tensor:
    """The rank of each value in its group: 0 for the smallest, ties in batch order, NaN last."""
    _, place, start = group_order(x, index)
    return (place - start).to(x.dtype)


def group_cumsum_by(x: Tensor, key: Tensor, index: Tensor) -> Tensor:
    """The running sum in each group in ascending order of a key, ties in batch order."""
    order, place, start = group_order(key, index)
    sums = x[order].cumsum(0)
    return sums[place] - (sums - x[order])[start]


def position_sum(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The sum over the tokens at the same place of a group's responses, at each of these tokens."""
    place = (mask.cumsum(1) - 1).clamp(min=0)
    cell = index[:, None] * x.shape[1] + place
    sums = (
        torch.zeros_like(x)
        .flatten()
        .index_add(0, cell.flatten(), torch.where(mask, x, 0.0).flatten())
    )
    return sums[cell]


def suffix_sum(x: Tensor, gamma: Tensor | float, mask: Tensor) -> Tensor:
    """y_t = x_t + gamma y_(t+1) over the tokens that count, in steps of doubled reach."""
    y = torch.where(mask, x, 0.0)
    # A token that does not count passes on the sum of those after it.
    factor = torch.where(mask, gamma, torch.ones_like(x))
    reach = 1
    while reach < x.shape[1]:
        y = y + factor * pad(y[:, reach:], (0, reach))
        factor = factor * pad(factor[:, reach:], (0, reach))
        reach *= 2
    return y


def cumsum(x: Tensor, gamma: Tensor | float, mask: Tensor) -> Tensor:
    """y_t = x_t + gamma y_(t-1) over the tokens that count."""
    return suffix_sum(x.flip(1), gamma, mask.flip(1)).flip(1)


def next_token(x: Tensor, fill: float, mask: Tensor) -> Tensor:
    """The value at the next token that counts, and a fill after the last."""
    length = mask.shape[1]
    places = torch.where(mask, torch.arange(length, device=x.device), length)
    # The first place at or after each one, then after each one.
    following = pad(
        places.flip(1).cummin(1).values.flip(1)[:, 1:], (0, 1), value=length
    )
    return torch.where(
        following < length, x.gather(1, following.clamp(max=length - 1)), fill
    )


def prev_token(x: Tensor, fill: float, mask: Tensor) -> Tensor:
    """The value at the previous token that counts, and a fill before the first."""
    return next_token(x.flip(1), fill, mask.flip(1)).flip(1)


def binomial_ratio(a: Tensor, b: Tensor, k: int) -> Tensor:
    """C(a, k) / C(b, k), the share of the ways to choose k of b that lies within a of them; b is at least k."""
    step = torch.arange(k, device=a.device)
    return ((a[..., None] - step) / (b[..., None] - step)).clamp(min=0).prod(-1)
