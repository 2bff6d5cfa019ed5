"""The policy: load it, run it on prompts, take log-probs with it, step it, save it.
    model, processor = load('Qwen/Qwen2.5-VL-7B-Instruct', dtype=torch.bfloat16, device='cuda')
    logps, entropy = Policy(model)(prompts, owner, ids, mask)  # both [K, T]; `prompts` are encoded questions
Any causal language model of transformers, with or without pictures. A prompt is computed once, its cache
fans out to its responses (`prefill`, `extend`); where it can not, or with gradient checkpointing, full
sequences take over. Logits exist for a chunk of tokens at a time. Sizes: Q prompts of length P,
K responses of length T, H hidden, V vocabulary, M response tokens."""
import json
import os
import re
import shutil
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import DynamicCache, DynamicLayer

transformers.utils.logging.disable_progress_bar()
LOGITS_AT_ONCE = 2 ** 25  # fp32 numbers of one chunk of logits: 128 MiB, 220 tokens of a 152k vocabulary
PER_TOKEN = ('input_ids', 'attention_mask', 'mm_token_type_ids', 'token_type_ids')  # the rest: pictures

class PictureProcessor(transformers.Qwen2_5_VLProcessor):
    """Qwen-VL's own without the part for videos, which wants torchvision."""
    def __init__(self, image_processor, tokenizer, chat_template=None):
        super().__init__(image_processor, tokenizer, chat_template=chat_template or tokenizer.chat_template)

    def save_pretrained(self, folder):  # one file a part, as the Hub's checkpoints have them
        self.image_processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

def load(init_from, dtype=torch.float32, device='cpu', attn_implementation='sdpa', min_pixels=0, max_pixels=0,
         trust_remote_code=False):
    """Folder, Hub id, .gguf file or package:NAME (which carries one) -> model in eval mode without dropout,
    processor (for text alone: tokenizer); min_pixels, max_pixels bound pictures (0: as the checkpoint)."""
    source, extra = init_from, {'trust_remote_code': trust_remote_code}
    settings = {'dtype': dtype, 'attn_implementation': attn_implementation}
    if str(init_from).startswith('package:'):
        package = find_spec(init_from.removeprefix('package:'))
        if package is None:
            raise OSError(f'{init_from} is not installed: pip install it, or take a Hub id')
        source = next(Path(package.origin).parent.glob('*.gguf'))
    if str(source).endswith('.gguf'):
        source, extra['gguf_file'] = str(Path(source).parent), Path(source).name
        settings['quantization_config'] = transformers.GgufConfig(dequantize=True)  # to be trained
    config = transformers.AutoConfig.from_pretrained(source, **extra)
    pictures = hasattr(config, 'vision_config')
    Auto = transformers.AutoModelForImageTextToText if pictures else transformers.AutoModelForCausalLM
    model = Auto.from_pretrained(source, **extra, **settings).to(device).eval()
    for module in model.modules():  # dropout would make old, new and reference log-probs three networks
        vars(module).update(dict.fromkeys({'p', 'attention_dropout', 'dropout'} & vars(module).keys(), 0.0))
    lacking = config.model_type.startswith('qwen') and not find_spec('torchvision')
    Processor = PictureProcessor if lacking else transformers.AutoProcessor
    processor = (Processor if pictures else transformers.AutoTokenizer).from_pretrained(source, **extra)
    for edge, pixels in (('shortest_edge', min_pixels), ('longest_edge', max_pixels)):
        if pictures and pixels:
            processor.image_processor.size[edge] = pixels
    return model, processor

def setup(config):
    """Process group, threads and placement from the settings -> arguments of load(), 'auto' resolved."""
    cuda = config['device'] == 'cuda' or config['device'] == 'auto' and torch.cuda.is_available()
    device = torch.device(f'cuda:{os.environ.get("LOCAL_RANK", 0)}' if cuda else 'cpu')
    torch.set_num_threads(config['cpu_threads'] or torch.get_num_threads())
    if cuda:
        torch.cuda.set_device(device)
    if int(os.environ.get('WORLD_SIZE', 1)) > 1:  # a long evaluation is no failure: wait an hour
        dist.init_process_group('nccl' if cuda else 'gloo', timeout=timedelta(hours=1))
    dtype = {'auto': 'bfloat16' if cuda else 'float32'}.get(config['dtype'], config['dtype'])
    names = ('attn_implementation', 'min_pixels', 'max_pixels', 'trust_remote_code')
    return dict(device=device, dtype=getattr(torch, dtype), **{name: config[name] for name in names})

def gather(item):
    """The `item` of every rank, in the order of ranks."""
    items = [item] * (dist.get_world_size() if dist.is_initialized() else 1)
    if dist.is_initialized():
        dist.all_gather_object(items, item)
    return items

def end_ids(model, processor):
    """Every id that ends a response: those of the generation config, the model's and the tokenizer's."""
    named = [source.eos_token_id for source in (model.generation_config, model.config.get_text_config(),
                                                getattr(processor, 'tokenizer', processor))]
    return sorted({i for ids in named for i in (ids if isinstance(ids, (list, tuple)) else [ids])} - {None})

def save(folder, model, processor, state, optimizer=None):
    """On all ranks: weights, config, tokenizer, state.json, shards of `optimizer`; renamed when complete.
    -> '' or, on every rank, why that failed: then an older `folder` is as it was."""
    folder, aside = Path(folder), Path(f'{folder}.tmp')
    rank, problem = int(os.environ.get('RANK', 0)), ''
    for mine in rank > 0, rank == 0:  # rank 0 last: what has been renamed is whole
        try:
            if mine:
                aside.mkdir(parents=True, exist_ok=True)
            if mine and optimizer is not None:
                own = getattr(optimizer, 'optim', optimizer)
                shard = {'state': own.state_dict()['state'], 'masters': own.param_groups[0]['params']}
                torch.save(shard | {'rng': torch.get_rng_state()}, aside / f'rank{rank}.pt')
            if mine and rank == 0:
                model.save_pretrained(aside)
                processor.save_pretrained(aside)
                sizes = {file.name: file.stat().st_size for file in aside.iterdir()}
                (aside / 'state.json').write_text(json.dumps(state | {'files': sizes}, indent=1))
                shutil.rmtree(folder, ignore_errors=True)
                aside.replace(folder)
        except Exception as error:  # of many kinds when a disk is full
            problem = f'rank {rank}: {error!r}'
        problems = gather(problem)
        if any(problems):
            break
    if rank == 0:
        shutil.rmtree(aside, ignore_errors=True)
    return ' '.join(problems).strip()

def newest(out_dir, say):
    """The newest whole checkpoint out_dir/step_*, that of latest/ before all; or None. Warns of torn ones."""
    latest, folders = Path(out_dir, 'latest').resolve().name, Path(out_dir).glob('step_??????')
    for folder in sorted(folders, key=lambda x: (x.name == latest, os.path.getmtime(x)), reverse=True):
        with suppress(OSError, ValueError):
            files = json.loads((folder / 'state.json').read_text()).get('files', {})
            if files == {name: (folder / name).stat().st_size for name in files}:
                return folder
        say(f'warning: {folder} is torn, as files in it are missing or cut off: skipped')

def load_optimizer(folder, optimizer):
    """This rank's shard of the optimizer and its random state, as save() wrote them."""
    shard = torch.load(Path(folder, f'rank{os.environ.get("RANK", 0)}.pt'), 'cpu', weights_only=True)
    optimizer = getattr(optimizer, 'optim', optimizer)
    optimizer.load_state_dict(optimizer.state_dict() | {'state': shard['state']})
    for master, saved in zip(optimizer.param_groups[0]['params'], shard['masters'], strict=True):
        master.copy_(saved)
    torch.set_rng_state(shard['rng'])

def collate(prompts, device):
    """Encoded prompts (dicts of unpadded tensors) -> one left-padded batch; pictures stay a flat list.
    input_ids [5, 6, 7] and [8] -> input_ids [[5, 6, 7], [0, 0, 8]], attention_mask [[1, 1, 1], [0, 0, 1]]"""
    batch = {}
    for key in {key for prompt in prompts for key in prompt}:
        rows = [prompt[key] for prompt in prompts if key in prompt]
        if key in PER_TOKEN:
            rows = [torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side='left')]  # [Q, P]
        batch[key] = torch.cat(rows).to(device)
    return batch

class Policy(torch.nn.Module):
    """A language model as a distribution over responses: softmax(logits / temperature), forbidden ids out."""
    def __init__(self, model, temperature=1.0, share_prefix=True):
        super().__init__()
        self.model, self.temperature = model, temperature
        self.body, self.head = model.base_model, model.get_output_embeddings()
        self.vision = getattr(self.body, 'visual', getattr(self.body, 'vision_tower', None))
        self.can_share = {type(layer) for layer in DynamicCache(config=model.config).layers} == {DynamicLayer}
        self.share_prefix = share_prefix and self.can_share
        # picture and video placeholders must never be sampled: they would ask for pictures that are not there
        marks = [value for key, value in model.config.to_dict().items() if isinstance(value, int)
                 and re.match('(image|video|vision|audio|boi|eoi).*_token_(id|index)', key)]
        forbidden = torch.isin(torch.arange(len(self.head.weight)), torch.tensor(marks))  # [V]
        self.register_buffer('forbidden', forbidden.to(model.device), persistent=False)
        self.eval()  # train mode only switches gradient checkpointing on: there is no dropout
        with torch.no_grad():
            few = {'input_ids': torch.arange(3, device=model.device)[None], 'use_cache': False}
            plain, whole = self.head(self.body(**few).last_hidden_state), model(**few).logits
        if not torch.allclose(plain, whole, rtol=1e-2, atol=1e-3):
            raise ValueError(f'{type(model).__name__} transforms its logits: do the same in Policy.logits')

    def logits(self, hidden, temperature=None):
        """[..., H] -> fp32 [..., V] at `temperature` (None: that of training), forbidden ids at -infinity."""
        logits = self.head(hidden).float() / (temperature or self.temperature)  # any will do for greedy (0)
        return logits.masked_fill(self.forbidden, torch.finfo(torch.float32).min)

    def prefill(self, batch, keep=True):
        """Compute a batch, padded left -> hidden states [Q, P, H], cache (if `keep`), next position [Q]."""
        mask = batch['attention_mask']  # [Q, P]
        positions, next_position = (mask.cumsum(-1) - 1).clamp(min=0), mask.sum(-1)  # [Q, P], [Q]
        cache = DynamicCache(config=self.model.config) if keep else None
        inputs = {key: value for key, value in batch.items() if not key.endswith('token_type_ids')}
        if 'image_grid_thw' in batch:
            positions, delta = self.body.get_rope_index(**batch)  # M-RoPE: [3, Q, P], [Q, 1]
            next_position = next_position + delta[:, 0]
        hidden = self.body(**inputs, position_ids=positions, cache=cache, use_cache=keep)[0]
        return hidden, cache, next_position

    def extend(self, cache, ids, mask, position):
        """Feed `ids` [K, T] after a cache of K rows; `mask` [K, P + T] covers both -> hidden [K, T, H]."""
        positions = position[:, None] + torch.arange(ids.shape[1], device=ids.device)  # [K, T] on each axis
        inputs = {'input_ids': ids, 'attention_mask': mask, 'position_ids': positions}
        return self.body(**inputs, cache=cache, use_cache=True)[0]

    def forward(self, prompts, owner, ids, mask):
        """Q encoded prompts, owner [K] (a row of them), ids and mask [K, T] of responses, padded right ->
        their log-probs [K, T] and entropies [K, T] (without gradient); 0 where `mask` is False."""
        if self.share_prefix and not self.training:
            batch = collate(prompts, ids.device)
            hidden, cache, next_position = self.prefill(batch)
            hidden = hidden[:, -1][owner, None]  # [K, 1, H]: predicts the first response token
            if ids.shape[1] > 1:
                cache.batch_select_indices(owner)
                seen = torch.cat([batch['attention_mask'][owner], mask[:, :-1].long()], 1)  # [K, P + T - 1]
                rest = self.extend(cache, ids[:, :-1], seen, next_position[owner])
                hidden = torch.cat([hidden, rest], 1)  # [K, T, H]
        else:
            batch = collate([prompts[row] for row in owner.tolist()], ids.device)  # pictures follow
            responses = {'input_ids': ids, 'attention_mask': mask.long()}  # and type ids 0: text
            for key in batch.keys() & set(PER_TOKEN):  # [K, P + T]
                batch[key] = torch.cat([batch[key], responses.get(key, torch.zeros_like(ids))], 1)
            hidden = self.prefill(batch, keep=False)[0][:, -ids.shape[1] - 1:-1]  # [K, T, H]
        if self.vision is not None and batch.keys() <= set(PER_TOKEN) and torch.is_grad_enabled():
            # a rank without pictures still has to take part in the reduction of the vision tower's gradients
            hidden = hidden + 0 * sum(weight.view(-1)[0] for weight in self.vision.parameters())
        size = max(1, LOGITS_AT_ONCE // len(self.forbidden))
        pieces = [*zip(hidden[mask].split(size), ids[mask].split(size))]  # [m, H], [m]; of all: M
        scores = [checkpoint(self.score, *piece, use_reentrant=False) if pieces[1:] else self.score(*piece)
                  for piece in pieces]  # the logits of several are computed again in backward
        full = torch.zeros(mask.shape, device=ids.device)
        return tuple(full.masked_scatter(mask, torch.cat(parts)) for parts in zip(*scores))

    def score(self, hidden, ids):
        """Log-probs, entropies [m] of `ids` [m] after `hidden` [m, H]."""
        everything = self.logits(hidden).log_softmax(-1)  # [m, V]
        frozen = everything.detach()
        return everything.gather(-1, ids[:, None])[:, 0], -(frozen.exp() * frozen).sum(-1)

class MasterAdamW(torch.optim.AdamW):
    """AdamW in fp32: weights in bf16 get masters in fp32, or steps of 1e-6 would round away."""
    def __init__(self, groups, **settings):
        self.weights = [p for group in groups for p in group['params']]
        super().__init__([p.detach().float() for p in self.weights], fused=True, **settings)  # fp32: the same

    @torch.no_grad()
    def step(self):
        for p, master in zip(self.weights, self.param_groups[0]['params']):
            master.grad = None if p.grad is None else p.grad.float()
        super().step()
        for p, master in zip(self.weights, self.param_groups[0]['params']):
            p.copy_(master)
            master.grad = None

def make_optimizer(parameters, world, **settings):
    """MasterAdamW, its states sharded over ranks (ZeRO-1) where there are several."""
    return MasterAdamW([{'params': parameters}], **settings) if world == 1 else ZeroRedundancyOptimizer(
        parameters, optimizer_class=MasterAdamW, **settings)
