# source: aten/src/ATen/native/mps/operations/FastFourierTransform.mm (2.13.0)
# expect: exit 0
import torch

x = torch.randn(8, device="mps")
spectrum = torch.fft.rfft(x)
assert spectrum.dtype is torch.complex64
assert spectrum.is_mps
torch.testing.assert_close(torch.fft.irfft(spectrum, n=8), x, atol=1e-5, rtol=1e-4)
z = torch.complex(x, x)
assert z.abs().shape == (8,)
torch.testing.assert_close((z * z.conj()).real, 2 * x * x, atol=1e-5, rtol=1e-4)
assert torch.view_as_real(z).shape == (8, 2)
window = torch.hann_window(4, device="mps")
s = torch.stft(x, 4, hop_length=2, window=window, return_complex=True)
assert s.shape == (3, 5)
torch.testing.assert_close(torch.istft(s, 4, 2, window=window), x, atol=1e-4, rtol=1e-3)
