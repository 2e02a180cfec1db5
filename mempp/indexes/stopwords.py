"""English words that say nothing about what a text is about."""

# The English list of the Snowball project as PostgreSQL ships it, on which the paper's engine runs.
_SNOWBALL = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being
have has had having do does did doing a an the and but if or because as until while of at by for with about against
between into through during before after above below to from up down in out on off over under again further then once
here there when where why how all any both each few more most other some such no nor not only own same so than too very
s t can will just don should now
"""

# Words of Snowball's own, longer list, a question word it lacks, and what contractions leave behind: "we've" without
# its apostrophe, "isn't" with a space or nothing in its place. "d" and "m" are left out: they are names of things
# ("Vendor D"), and analysis removes them after an apostrophe. So are "won" and "haven", which are words.
_MORE = """
would could ought cannot whose ll ve re
ain aren couldn didn doesn hadn hasn isn mightn mustn needn shan shouldn wasn weren wouldn
aint arent cant couldnt didnt doesnt dont hadnt hasnt havent isnt mightnt mustnt neednt oughtnt shant shouldnt wasnt
werent wont wouldnt
"""

STOP_WORDS = frozenset((_SNOWBALL + _MORE).split())
