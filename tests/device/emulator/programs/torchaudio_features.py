# source: torchaudio/transforms/_transforms.py (2.11)
# needs: torchaudio
# expect: exit 0
import torch
import torchaudio

wave = torch.sin(torch.arange(1600.0) / 10)[None]
mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=128, hop_length=64, n_mels=8)
expected = mel(wave)
out = mel.to("mps")(wave.to("mps"))
assert out.is_mps
torch.testing.assert_close(out.cpu(), expected, atol=1e-4, rtol=1e-3)
db = torchaudio.transforms.AmplitudeToDB().to("mps")(out)
assert db.shape == expected.shape
mfcc = torchaudio.transforms.MFCC(16000, n_mfcc=4, melkwargs={"n_fft": 128, "n_mels": 8}).to("mps")
assert mfcc(wave.to("mps")).shape[1] == 4
resample = torchaudio.transforms.Resample(16000, 8000).to("mps")
assert resample(wave.to("mps")).shape == (1, 800)
mask = torchaudio.transforms.FrequencyMasking(2).to("mps")
assert mask(out).is_mps
