"""The built-in text that models are scored on, about 2,000 tokens, and how a text becomes token ids.

Written for this purpose: story, dialogue, instructions, numbers, code, tables, other languages and a letter, so that a
fault which shows only in one kind of text has a chance to show. Nothing in it is copied from anywhere, so no model has
learned it by heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from rml.errors import InvalidArgument, RmlError
from rml.tokenizer import Tokenizer
from rml.tokenizer_files import open_tokenizer

TEXT: Final = """\
The ferry to Orrin leaves at six in the morning, when the harbour is still grey and the gulls have not begun to argue.
Maren came early that day because she wanted to see the engine before anyone could tell her not to. The engineer, a
tall man called Tobiah, let her stand on the iron step while he wiped the brass with a rag that had once been a shirt.

"You can look," he said, "but the moment she starts you keep your hands behind your back. She is older than your
grandmother and has a worse temper."

"Has she ever stopped in the middle?"

"Twice. Once for a rope around the screw, and once because somebody had filled the tank with the wrong oil. Both times
we drifted as far as the lighthouse, and both times the keeper rowed out with a pot of coffee and told us that we were
late."

Maren laughed. Through the small round window she could see the first passengers come down the hill: the baker's wife
with two baskets, a man leading a goat, three children who were not supposed to travel alone and had therefore put on
their best coats. Behind them, slowly, as if the road belonged to him, walked the old schoolmaster with his umbrella
open although it was not raining. He always said that an umbrella is a promise, and that one should keep a promise
before it is asked for.

The crossing takes fifty minutes if the wind is kind. On the way the water changes its colour four times: brown in the
harbour, green along the sandbanks, almost black above the old river bed, and then a pale blue that is found nowhere
else on that coast. Tobiah claimed that he could tell the time by it. He had never been wrong by more than five minutes,
except on the day of the eclipse, and he did not count that day.

How to keep a sourdough starter alive

1. Weigh the jar while it is empty and write the number on the lid. Ours weighs 412 grams.
2. Put 50 grams of starter, 50 grams of water and 50 grams of flour into the jar. Stir until no dry flour is left.
3. Leave it at 24 degrees. After four to six hours it has doubled; at 18 degrees the same takes about twelve hours.
4. When it begins to sink, feed it again, or put it into the fridge, where it sleeps for a week.
5. If a grey liquid gathers on top, the starter is hungry and not dead. Pour the liquid off and feed it twice.

A baker who works with 2 kilograms of flour a day, at 20 percent starter, needs 400 grams each morning. He keeps back 50
and feeds them with 175 grams of flour and 175 grams of water, which makes 400 again. The sum is simple, but it is
worth writing on the wall, because nobody does sums well at four in the morning.

A function that counts words:

    def count_words(text: str) -> dict[str, int]:
        \"\"\"How often each word occurs; case does not matter.\"\"\"
        counts: dict[str, int] = {}
        for word in text.lower().split():
            word = word.strip(".,;:!?")
            if word:
                counts[word] = counts.get(word, 0) + 1
        return counts

    assert count_words("To be, or not to be.") == {"to": 2, "be": 2, "or": 1, "not": 1}

It splits at white space, so "well-known" is one word, and it strips punctuation only from the ends, so "don't" stays
whole. For a text of n characters it takes time proportional to n. If the ten most frequent words are wanted, sort the
items by their count, largest first, and take the first ten; for very long lists a heap is faster.

| station   | height (m) | rain in May (mm) | rain in June (mm) |
|-----------|-----------:|-----------------:|------------------:|
| Alder     |        212 |             48.5 |              61.0 |
| Birch     |        640 |             90.2 |             112.7 |
| Cedar     |       1185 |            131.9 |             155.3 |

From the table one sees that the rain grows with the height: from Alder to Cedar the ground rises by 973 metres, and the
rain in June by 94.3 millimetres, which is close to one millimetre for every ten metres. Three stations prove nothing,
of course. A careful person would ask whether the gauges stand in the open, who reads them on Sundays, and whether the
station at Cedar was not moved in 1987, as a note in the margin of the old book suggests.

Le matin, la vieille dame ouvre la fenêtre et parle aux moineaux. Elle leur raconte les nouvelles du village, le prix du
pain et la santé du facteur. Les oiseaux n'écoutent que les miettes, mais cela lui suffit.

Im Winter war der See so fest gefroren, dass die Kinder quer hinüber zur Schule liefen. Im März verbot es der
Bürgermeister, und alle gingen wieder den langen Weg um das Ufer, zwanzig Minuten mehr, bei jedem Wetter.

El tren llegó con dos horas de retraso, pero nadie se quejó: en el andén había una orquesta que también esperaba, y para
no aburrirse tocaba valses. ¿Quién quiere llegar a tiempo cuando suena la música?

Почта приходит по вторникам. 郵便は火曜日に届きます。 信在星期二到。

Dear Ms Halloran,

Thank you for your letter of 3 September. You asked why the bridge on Mill Lane has been closed for longer than we had
announced. The short answer is that the river had washed out more of the northern pier than the divers could see in
spring. When the water fell in August, we found a hollow of about 2.5 by 4 metres under the foundation. It has to be
filled with concrete in three stages, and each stage must harden for at least ten days before the next one begins.

We expect to open one lane for cars on 14 October and both lanes on 2 November. Pedestrians and cyclists can use the
wooden footbridge beside the mill, which is lit until midnight. I know that this does not help the people who deliver
goods to the market; for them we have agreed with the railway that vans under 3.5 tonnes may use the service road along
the tracks between 5 and 7 a.m.

If you would like to see the works, you are welcome to join the visit on Saturday at eleven. Please wear strong shoes.

Yours sincerely,
P. Okonjo, Roads and Bridges

Why do glasses ring when they are struck? The wall of a glass is elastic: pushed inwards it springs back, overshoots,
and swings through its rest position several hundred times a second. The air beside it is pressed and released at the
same rate, and this is the tone we hear. Pour in some water and the tone falls, because the wall now has to move the
water as well; the heavier the moving mass, the slower the swing. The stiffness of the wall, on the other hand, does
not change much. This is why a thin glass sings and a thick one clicks: in the thick one the energy is lost at the
foot and in the hand before the ear has had its share.

Q: I have a list of 90 numbers, and the average is 12. I add ten numbers whose average is 22. What is the new average?
A: The sum of the first 90 is 90 * 12 = 1080. The ten new ones add 220, which makes 1300. There are 100 numbers now, so
the new average is 13.

Q: And if I wanted the average to be 14?
A: Then the sum would have to be 1400, so the ten new numbers would have to add 320, an average of 32.

The wind turned in the evening. On the way back the ferry was almost empty, and the engine, which had behaved well all
day, began to knock as soon as the lights of the harbour came into sight. Tobiah listened with his head on one side.
"She wants to go home," he said, and closed the valve by a quarter of a turn. The knocking stopped. Maren stood on the
iron step with her hands behind her back and watched the needle of the pressure gauge tremble, sink a little, and then
stand still. When the ropes were thrown and the screw had stopped, it was so quiet that she could hear the
schoolmaster close his umbrella. He looked at the sky, where the first stars were coming out between two long clouds,
and nodded, as if somebody had kept a promise.

"Tomorrow again?" asked the engineer.

"Tomorrow," said Maren, "if my mother does not find the oil on my sleeves."
"""

SEED: Final = 20240229  # of the ids for models that have no tokenizer


@dataclass(frozen=True)
class Scored:
    """Token ids to run, without BOS, and where they came from, for the protocol that is printed."""

    ids: list[int]
    source: str
    tokenizer: Tokenizer | None
    bos: int | None  # the token that begins every window; None = the model wants none


def read_text(path: Path | None) -> tuple[str, str]:
    """A text and its name: a UTF-8 file's, or the built-in one's."""
    if path is None:
        return TEXT, "the built-in text"
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}: not UTF-8 text ({error}); convert it first") from error


def random_ids(vocab: int, count: int) -> list[int]:
    """`count` ids without a pattern, the same every time."""
    return [int(i) for i in np.random.Generator(np.random.PCG64(SEED)).integers(0, vocab, count)]


def scored_ids(model: Path, vocab: int, count: int, text: Path | None = None, bos: bool | None = None) -> Scored:
    """The first `count` ids of a text in the words of the model at `model`; random ids if that has no tokenizer.

    vocab: rows of the model's embedding. bos: whether windows begin with BOS; None = as the model's file says.
    Raises InvalidArgument for a text that is empty, not UTF-8, or given to a model without a tokenizer.
    """
    try:
        tokenizer = open_tokenizer(model)
    except RmlError as error:
        if text is not None:
            raise InvalidArgument(f"a text needs a tokenizer: {error}") from error
        return Scored(random_ids(vocab, count), f"random, seed {SEED}: no tokenizer", None, None)
    words, name = read_text(text)
    ids = tokenizer.encode(words, bos=False)[:count]
    if not ids:
        raise InvalidArgument(f"{name} is empty")
    wanted = tokenizer.add_bos if bos is None else bos
    if wanted and tokenizer.bos_id is None:
        raise InvalidArgument(f"{model}: BOS was asked for, but the vocabulary names none")
    return Scored(ids, f"the first {len(ids)} of {name}", tokenizer, tokenizer.bos_id if wanted else None)


def parse_ids(text: str) -> list[int]:
    """`1,15,7` or `1 15 7` as ids."""
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise InvalidArgument(f"{text!r}: expected numbers like 1,15,7 ({error})") from error


def piece_text(tokenizer: Tokenizer | None, token: int) -> str:
    """A token as people read it, quoted; empty without a tokenizer."""
    if tokenizer is None or not 0 <= token < tokenizer.vocab_size:
        return ""
    return repr(tokenizer.piece(token).decode(errors="replace"))


def context_text(tokenizer: Tokenizer | None, ids: Sequence[int], position: int, before: int = 8) -> str:
    """The text that ends with the token at `position`, quoted; empty without a tokenizer."""
    if tokenizer is None:
        return ""
    return repr(
        tokenizer.decode([i for i in ids[max(0, position - before + 1) : position + 1] if i < tokenizer.vocab_size])
    )


def token_text(tokenizer: Tokenizer | None, token: int) -> str:
    """A token's text, quoted, or its id where there is no tokenizer."""
    return piece_text(tokenizer, token) or str(token)
