# source: torchaudio/transforms/_transforms.py (2.11), SpeedPerturbation and PitchShift: an UninitializedParameter moves
# needs: torchaudio
# expect: exit 0
import torch
import torchaudio

wave = torch.sin(torch.arange(1600.0) / 10)[None].to("mps")
shift = torchaudio.transforms.PitchShift(16000, n_steps=2, n_fft=128).to("mps")
out = shift(wave)
assert out.is_mps
assert out.shape == wave.shape
assert shift.kernel.is_mps
