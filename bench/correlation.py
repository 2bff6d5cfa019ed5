"""Figure 5: are gradients of answers that share more n-grams more alike? Pairs of one question and advantage.
    python bench/correlation.py config/toy.py --init_from=out/toy/latest assets/correlation.png
Words but the last are train.py's. Prints how Jaccard similarity goes with the cosine of gradients."""
import sys
import tempfile
from itertools import combinations

import pandas
import seaborn
import torch
from speed import TABLE, train

def gradient(t, names):
    """Direction of the policy gradient of one trajectory over all weights -> unit vector."""
    logps, _ = names['policy'](*names['sampling'].pack([t], names['prompts'], names['device']))
    pieces = torch.autograd.grad(t.advantage * logps.mean(), [*names['policy'].parameters()])
    return torch.nn.functional.normalize(torch.cat([piece.flatten() for piece in pieces]), dim=0)

if __name__ == '__main__':
    *words, picture = sys.argv[1:]
    with tempfile.TemporaryDirectory() as out:
        names, _ = train(TABLE['one_step'] + words, out)
    mdap, pairs = names['mdap'], []
    for group in names['groups']:
        for rows in mdap.advantage_groups([t.advantage for t in group]):
            alike = [group[i] for i in rows if group[i].advantage and len(rows) > 1]
            for (a, u), (b, v) in combinations([(t, gradient(t, names)) for t in alike], 2):
                apart = [mdap.deviation(mdap.ngrams(a.ids, n), mdap.ngrams(b.ids, n)) for n in (1, 2, 3)]
                pairs.append([*(1 - float(x) for x in apart), float(u @ v)])
    table = pandas.DataFrame(pairs, columns=['1-grams', '2-grams', '3-grams', 'cosine'])
    for what, rows in ('all', table), ('of different answers', table[table['3-grams'] < 1]):
        scores = {how: rows.corr(how)['cosine'][:3].round(2) for how in ('pearson', 'spearman')}
        print(f'{len(rows)} pairs, {what}\n{pandas.DataFrame(scores)}')
    shown = table.melt('cosine', var_name='shared', value_name='Jaccard similarity')
    grid = seaborn.relplot(shown, x='Jaccard similarity', y='cosine', col='shared', alpha=0.3, height=3.4)
    grid.set_titles('{col_name}').set_ylabels('cosine of gradients').savefig(picture, dpi=130)
