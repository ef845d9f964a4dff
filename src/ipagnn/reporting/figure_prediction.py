"""A prediction as a figure: the likeliest results as bars, beside the truth."""

from matplotlib.figure import Figure

from ipagnn.inference.html import truth_sentence
from ipagnn.inference.predict import Prediction
from ipagnn.reporting.style import BLUE, GREY, VERMILION, style

_SHOWN = 10


def prediction_figure(prediction: Prediction) -> Figure:
    """Bars for the likeliest results of the model and, for a masked program, of its fillings."""
    exact = {c.value: c.probability for c in (prediction.truth.exact or ())[:_SHOWN]}
    probabilities = {c.value: c.probability for c in prediction.top(_SHOWN - 5 if exact else _SHOWN)}
    values = list(dict.fromkeys([*probabilities, *exact]))
    true = prediction.true_value
    if true is not None and true not in probabilities:
        values.append(true)
    with style():
        figure = Figure(figsize=(1.6 + 0.42 * len(values), 2.4), layout="constrained")
        axes = figure.subplots()
        places = range(len(values))
        width = 0.38 if exact else 0.7
        shift = width / 2 if exact else 0.0
        heights = [prediction.probability(value) for value in values]
        colours = [VERMILION if value == true else BLUE for value in values]
        axes.bar([x - shift for x in places], heights, width, color=colours, label=prediction.model)
        if exact:
            axes.bar(
                [x + shift for x in places],
                [exact.get(v, 0.0) for v in values],
                width,
                color="white",
                edgecolor=GREY,
                hatch="////",
                label="exact, over all fillings",
            )
            axes.legend()
        axes.set_xticks(list(places), [str(value) for value in values])
        axes.set_xlabel("result" if true is None else "result (orange: the true one)")
        axes.set_ylabel("probability")
        axes.set_title(_title(prediction), loc="left", wrap=True)
    return figure


def _title(prediction: Prediction) -> str:
    sentence = truth_sentence(prediction) if prediction.truth.why is None else "there is no true result"
    return f"{sentence[0].upper()}{sentence[1:]}"
