"""Small hand-made texts and the sentences that people read in them, for `splitters.py`.

In a case `|` ends a sentence; nothing else is marked. They were written by whoever wrote our own
splitter, after its rules and with some of the same texts in mind: on them it has an advantage that
the others do not, and they serve as its tests. The fair judge is text that others have cut.
"""

from __future__ import annotations

ABBREVIATIONS = [
    "Dr. Lee was kind.| Mr. and Mrs. Hill agreed.",
    "We waited approx. 40 minutes.| Never again.",
    "Opens at 9 a.m. and closes at 5 p.m. every day.",
    "Breakfast ends at 10 a.m.| We missed it.",
    "The U.S. version is better.| The other one is not.",
    "Bring a jacket, e.g. a light one.| It is cold.",
    "Pasta, pizza, etc. were all fine.",
    "They had pasta, pizza, etc.| The wine list was short.",
    "J. Smith served us.| Great guy.",
    "Room no. 5 was dirty.| No. 6 was not.",
    "Sony vs. Canon is no contest.| Canon wins.",
    "The St. Regis was lovely.| We will return.",
    "Made by Acme Inc. in Ohio.| Works fine.",
]
NUMBERS = [
    "It cost $5.95.| Fair enough.",
    "Version 2.0 is slow.| Version 1.9 was not.",
    "The 15.6 in. screen is dim.",
    "I give it 4.5 stars.| Not 5.",
    "We paid 50.| Worth it.",
    "It weighs 2.5 lbs. with the battery.",
    "Arrived at 8:30.| Left at 9.",
    "f/2.8 is fast.| Buy it.",
]
MARKS = [
    "Wow!!!| Just wow!!!",
    "Really?!| I think not.",
    "Great food!| great service!| great price!",
    "Is it good?| yes it is.",
    "Loved it...| Will return.",
    "The soup was... interesting.",
    "Well… that was odd.| Bye.",
    "So good!!| so so good!!| ok bye",
    "the food . . . was ok .",
    "good ! ! !| bad .",
]
NO_SPACE = [
    "Great food.|Bad service.",
    "The room was clean.|The bed was hard.| Ok.",
    "Order from Amazon.com today.| It is cheap.",
    "See www.example.com for more.| Thanks.",
    "Mail me at a.b@example.com please.| Thanks.",
    "Wow!|Great!|Nice!",
]
LINES = [
    "Great food\n\n|Bad service",
    "Great food.\n|Bad service.",
    "Pros:\n|- light\n|- cheap\n|Cons:\n|- loud",
    "1. Good screen\n|2. Bad keys\n|3. Fair price",
    "* clean\n|* quiet",
    "• fast • light".replace(" • ", " |• "),
    "This camera takes wonderful pictures even when the light\nis poor and I run.| Buy it.",
    "Battery: great\n|Screen: poor",
    "Nice place\r\n|Bad parking\r\n",
    "good location\n|friendly staff\n|small rooms",
]
HTML = [
    "Great food.<br /><br />|Bad service.",
    "Great food<br>|Bad service",
    "<p>Great food</p>|<p>Bad service</p>",
    "<ul><li>light</li>|<li>cheap</li></ul>",
    "The <b>best</b> food.| Ever.",
    "Mac &amp; cheese was fine.| Try it.",
    "Weight < 2 kg and price > 100.| Ok.",
]
QUOTES = [
    '"Great!" she said.| We left.',
    'He said "no."| We left.',
    "(It was cold.)| We left.",
    "They call it “fresh.”| It is not.",
    "'Fine', he said.| Bye.",
    'The "deluxe" room was small.| Very small.',
    "It was good (really good!) and cheap.",
]
EMOJI = [
    "Great food 😀| Bad service 😡",
    "Great food! 😀| Bad service.",
    "Loved the 🍕 here.| Will return.",
    "Nice :)| Will return.",
    "ok :(| Never again",
    "Best 👍🏽👍🏽👍🏽| Thanks",
    "I ❤️ this place.| You will too.",
]
CASE = [
    "THE FOOD WAS COLD.| NEVER AGAIN!!!| AVOID.",
    "the food was cold.| never again.| avoid.",
    "i loved it.| my wife did too.",
    "GREAT PHONE!| BUT THE BATTERY IS BAD.",
    "it broke after a week.| dr. lee fixed it.",
    "iPhone cases are fine.| iPad ones are not.",
]
LANGUAGES = [
    "Muy bueno.| ¿Volveremos?| ¡Claro!",
    "Très bon.| À refaire.",
    "Das Essen war gut.| Über den Preis schweige ich.",
    "Очень вкусно.| Придём ещё.",
    "料理は美味しい。|また来ます。",
    "很好！|下次再来。",
]
CASES = {
    "abbreviations": ABBREVIATIONS,
    "numbers": NUMBERS,
    "marks": MARKS,
    "no_space": NO_SPACE,
    "lines": LINES,
    "html": HTML,
    "quotes": QUOTES,
    "emoji": EMOJI,
    "case": CASE,
    "languages": LANGUAGES,
}
