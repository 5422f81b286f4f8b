def group_index(group: Tensor) -> Tensor:
    """The row of the first response of each response's group, so that any whole numbers can name groups.

    The shape of torch.unique's result depends on the values, which torch.compile cannot handle in one graph.
    """
    values, order = torch.sort(group, stable=True)
    return order[torch.searchsorted(values, group.contiguous())]


def is_first(index: Tensor) -> Tensor:
    """True for the first response of each group, at which a value of the group is counted."""
    return index == torch.arange(len(index), device=index.device)


def to_float(x: Tensor) -> Tensor:
    """Float32 for half precision, whole numbers and truth values; float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def safe_div(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 if b is 0."""
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
    """True at each response's last token that counts."""
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1)


def sum_of(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The sum of the values that count."""
    return torch.where(mask, x, 0.0).sum(dim)


def mean_of(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The mean of the values that count, 0 if there are none."""
    count = mask.sum(dim, keepdim=True).clamp(min=1)
    mean = torch.where(mask, x, 0.0).sum(dim, keepdim=True) / count
    rest = torch.where(mask, x - mean, 0.0)
    total, size = rest.sum(dim, keepdim=True), rest.abs().sum(dim, keepdim=True)
    # If all differences have one sign, the values are equal, and the differences are rounding errors.
    return (mean + torch.where(total.abs() == size, total / count, 0.0)).sum(dim)


def std_of(x: Tensor, mask: Tensor, dim: int | None = None, ddof: int = 1) -> Tensor:
    """The standard deviation of the values that count, exactly 0 if they are equal."""
    mean = mean_of(x, mask, dim)
    rest = x - (mean if dim is None else mean.unsqueeze(dim))
    free = (mask.sum(dim) - ddof).clamp(min=1)
    return safe_sqrt(sum_of(rest * rest, mask, dim) / free)


def max_of(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The largest of the values that count, 0 if there are none."""
    x = torch.where(mask, x, -torch.inf)
    # amax fails for an empty tensor.
    x = pad(x.flatten() if dim is None else x, (0, 1), value=-torch.inf)
    return torch.where(mask.sum(dim) > 0, x.amax(-1), 0.0)


def min_of(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The smallest of the values that count, 0 if there are none."""
    return -max_of(-x, mask, dim)


def whiten(x: Tensor, mask: Tensor) -> Tensor:
    """x minus the mean, divided by the standard deviation (ddof 0, at least 1e-4), of the values that count."""
    return (x - mean_of(x, mask)) / std_of(x, mask, ddof=0).clamp(min=1e-4)


def quantile_of(x: Tensor, q: float, mask: Tensor) -> Tensor:
    """The q-quantile of the values that count, interpolated linearly; 0 if there are none."""
    # A 0 is appended, so that there is a value to read if x has none.
    values = pad(torch.where(mask, x, torch.inf).flatten().sort().values, (0, 1))
    place = q * (mask.sum().to(x.dtype) - 1).clamp(min=0)
    low, high = values.take(place.floor().long()), values.take(place.ceil().long())
    return torch.where(
        mask.any(),
        torch.where(low == high, low, torch.lerp(low, high, place - place.floor())),
        0.0,
    )


def rank_of(x: Tensor, mask: Tensor) -> Tensor:
    """The rank of each value that counts: 0 for the smallest, ties in batch order, NaN last."""
    order = torch.argsort(x.flatten(), stable=True)
    order = order[torch.argsort((~mask.flatten()[order]).long(), stable=True)]
    rank = torch.empty_like(order).scatter(
        0, order, torch.arange(len(order), device=x.device)
    )
    return rank.to(x.dtype).reshape(x.shape)


def group_sum(x: Tensor, index: Tensor) -> Tensor:
    """The sum in each response's group."""
    return torch.zeros_like(x).index_add(0, index, x)[index]


def group_count(index: Tensor) -> Tensor:
    """The number of responses in each response's group."""
    return group_sum(torch.ones_like(index), index)


def group_mean(x: Tensor, index: Tensor) -> Tensor:
    """The mean in each response's group."""
    mean = group_sum(x, index) / group_count(index)
    rest, size = group_sum(x - mean, index), group_sum((x - mean).abs(), index)
    # If all differences have one sign, the values are equal, and the differences are rounding errors.
    return mean + torch.where(rest.abs() == size, rest / group_count(index), 0.0)


def group_std(x: Tensor, index: Tensor, ddof: int = 1) -> Tensor:
    """The standard deviation in each response's group, exactly 0 for equal values and for a single one."""
    rest = x - group_mean(x, index)
    free = (group_count(index) - ddof).clamp(min=1)
    return safe_sqrt(group_sum(rest * rest, index) / free)


def group_max(x: Tensor, index: Tensor) -> Tensor:
    """The largest value in each response's group."""
    return torch.full_like(x, -torch.inf).scatter_reduce(0, index, x, "amax")[index]


def group_min(x: Tensor, index: Tensor) -> Tensor:
    """The smallest value in each response's group."""
    return -group_max(-x, index)


def group_others_mean(x: Tensor, index: Tensor) -> Tensor:
    """The mean of the other values in each response's group (leave-one-out); the value itself if it is alone."""
    mean = group_mean(x, index)
    return mean + safe_div(mean - x, group_count(index) - 1)


def group_sum_of(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The sum of the values that count in each response's group."""
    return group_sum(torch.where(mask, x, 0.0), index)


def group_mean_of(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The mean of the values that count in each response's group, 0 if there are none."""
    count = group_sum(mask.long(), index).clamp(min=1)
    mean = group_sum_of(x, index, mask) / count
    rest = group_sum_of(x - mean, index, mask)
    size = group_sum_of((x - mean).abs(), index, mask)
    # If all differences have one sign, the values are equal, and the differences are rounding errors.
    return mean + torch.where(rest.abs() == size, rest / count, 0.0)


def group_std_of(x: Tensor, index: Tensor, mask: Tensor, ddof: int = 1) -> Tensor:
    """The standard deviation of the values that count in each response's group."""
    rest = x - group_mean_of(x, index, mask)
    free = (group_sum(mask.long(), index) - ddof).clamp(min=1)
    return safe_sqrt(group_sum_of(rest * rest, index, mask) / free)


def group_max_of(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The largest of the values that count in each response's group, 0 if there are none."""
    largest = group_max(torch.where(mask, x, -torch.inf), index)
    return torch.where(group_sum(mask.long(), index) > 0, largest, 0.0)


def group_min_of(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The smallest of the values that count in each response's group, 0 if there are none."""
    return -group_max_of(-x, index, mask)


def group_others_mean_of(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """The mean of the other values that count in each response's group; the value itself if it is alone."""
    mean = group_mean_of(x, index, mask)
    others = mean + safe_div(mean - x, group_sum(mask.long(), index) - 1)
    return torch.where(mask, others, mean)


def group_others_std(x: Tensor, index: Tensor) -> Tensor:
    """The standard deviation of the other values in each response's group, exactly 0 if they are equal."""
    is_other = (index[:, None] == index) & ~torch.eye(
        len(x), dtype=torch.bool, device=x.device
    )
    return std_of(x.expand(len(x), -1), is_other, dim=1)


def group_order(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The responses ordered by group and, within a group, by x; ties are in batch order, NaN is last.

    Also each response's position in this order, and the position of the first response of its group.
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
    # A token that does not count passes on the sum of the tokens after it.
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
    """The value at the next token that counts; `fill` for the last."""
    length = mask.shape[1]
    places = torch.where(mask, torch.arange(length, device=x.device), length)
    # The first token that counts at or after each place, then after each place.
    following = places.flip(1).cummin(1).values.flip(1)
    following = pad(following, (0, 1), value=length)[:, 1:]
    return torch.where(
        following < length, x.gather(1, following.clamp(max=length - 1)), fill
    )


def prev_token(x: Tensor, fill: float, mask: Tensor) -> Tensor:
    """The value at the previous token that counts; `fill` for the first."""
    return next_token(x.flip(1), fill, mask.flip(1)).flip(1)


def binomial_ratio(a: Tensor, b: Tensor, k: int) -> Tensor:
    """C(a, k) / C(b, k), the share of the ways to choose k of b that lies within a of them; b is at least k."""
    step = torch.arange(k, device=a.device)
    return ((a[..., None] - step) / (b[..., None] - step)).clamp(min=0).prod(-1)
