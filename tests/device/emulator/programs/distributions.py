# source: torch/distributions (2.13.0): samples are drawn on the device of the parameters
# torch: 2.3 2.13
# expect: exit 0
import torch
from torch.distributions import Bernoulli, Categorical, Independent, Normal, Uniform, kl_divergence

torch.manual_seed(0)
mean = torch.zeros(3, device="mps", requires_grad=True)
normal = Normal(mean, torch.ones(3, device="mps"))
x = normal.rsample((4,))
assert x.is_mps
assert x.shape == (4, 3)
normal.log_prob(x).sum().backward()
assert mean.grad.is_mps
policy = Categorical(logits=torch.randn(2, 5, device="mps"))
action = policy.sample()
assert action.dtype is torch.int64
assert policy.log_prob(action).is_mps
assert policy.entropy().min().item() >= 0
assert kl_divergence(normal, Normal(mean, 1.0)).sum().item() == 0
assert Bernoulli(torch.full((2,), 0.5, device="mps")).sample().is_mps
assert Uniform(torch.tensor(0.0, device="mps"), 1.0).sample((3,)).max().item() <= 1
assert Independent(normal, 1).log_prob(x).shape == (4,)
