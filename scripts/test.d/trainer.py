"""Training by others' loops: trainer.py transformers|lightning WORD... The last line is what the allocator
had at most."""

import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

STEPS = 6


class Words(Dataset):
    """Random tokens, whose labels they are."""

    def __len__(self):
        return 256

    def __getitem__(self, number):
        tokens = torch.randint(0, 50257, (128,))
        return {"input_ids": tokens, "attention_mask": torch.ones(128, dtype=torch.long), "labels": tokens}


def transformers(words):
    """GPT-2 with four blocks, by transformers' Trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    named = {}
    if "evaluate" in words:
        named.update(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=4, logging_steps=1,
        report_to=[], save_strategy="no", disable_tqdm=True, fp16="fp16" in words, bf16="bf16" in words,
        gradient_checkpointing="checkpoint" in words, gradient_accumulation_steps=2 if "accumulate" in words else 1,
        dataloader_num_workers=2 if "workers" in words else 0, **named,
    )
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, use_cache=False))
    Trainer(model, arguments, train_dataset=Words(), eval_dataset=Subset(Words(), range(8))).train()


def lightning(words):
    """A small network, by Lightning's Trainer."""
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))

        def loss(self, batch):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def training_step(self, batch, _number):
            loss = self.loss(batch)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, _number):
            self.log("validation", self.loss(batch))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = TensorDataset(torch.zeros(4096, 784), torch.zeros(4096, dtype=torch.long))
    loaders = [DataLoader(data, batch_size=256, num_workers=2, pin_memory=True, persistent_workers=True) for _ in range(2)]
    trainer = lightning.Trainer(
        accelerator="gpu", devices=1, max_steps=STEPS, precision=words[0], accumulate_grad_batches=2, gradient_clip_val=1.0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, val_check_interval=4,
    )
    trainer.fit(Model(), *loaders)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2:])
    print("peaks", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
