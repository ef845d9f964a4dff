import torch

from ipagnn.nn.cell import Decoder, Dense, StatementRNN


def cell_of(hidden: int, seed: int = 0) -> StatementRNN:
    return StatementRNN(hidden, torch.Generator().manual_seed(seed)).double()


def test_cell_is_torchs_two_layer_lstm_over_the_four_tokens() -> None:
    cell = cell_of(5)
    with torch.no_grad():
        cell.bias_1.normal_(generator=torch.Generator().manual_seed(1))
        cell.bias_2.normal_(generator=torch.Generator().manual_seed(2))
    lstm = torch.nn.LSTM(5, 5, num_layers=2).double()
    with torch.no_grad():
        for layer, (x, h, b) in enumerate(
            [(cell.input_1, cell.hidden_1, cell.bias_1), (cell.input_2, cell.hidden_2, cell.bias_2)]
        ):
            getattr(lstm, f"weight_ih_l{layer}").copy_(x.T)  # torch orders gates i, f, g, o as well
            getattr(lstm, f"weight_hh_l{layer}").copy_(h.T)
            getattr(lstm, f"bias_ih_l{layer}").copy_(b)
            getattr(lstm, f"bias_hh_l{layer}").zero_()
    random = torch.Generator().manual_seed(3)
    state = torch.randn(7, 20, dtype=torch.float64, generator=random)
    tokens = torch.randint(0, 1048, (7, 4), dtype=torch.int32, generator=random)
    c1, h1, c2, h2 = state.chunk(4, dim=1)
    _, (h, c) = lstm(cell.embedding[tokens].transpose(0, 1), (torch.stack([h1, h2]), torch.stack([c1, c2])))
    expected = torch.cat([c[0], h[0], c[1], h[1]], dim=1)
    torch.testing.assert_close(cell(state, tokens), expected)
    torch.testing.assert_close(cell(state, tokens, cell.table()), expected)
    used, places = tokens.unique(return_inverse=True)
    torch.testing.assert_close(cell(state, places, cell.table(used)), expected)


def test_decoder_is_one_step_of_torchs_lstm_without_input() -> None:
    random = torch.Generator().manual_seed(0)
    decoder = Decoder(5, 7, random).double()
    with torch.no_grad():
        for parameter in (decoder.bias_1, decoder.bias_2, decoder.dense.bias):
            parameter.normal_(generator=random)
    lstm = torch.nn.LSTM(5, 5, num_layers=2).double()
    with torch.no_grad():
        for layer, (h, b) in enumerate([(decoder.hidden_1, decoder.bias_1), (decoder.hidden_2, decoder.bias_2)]):
            getattr(lstm, f"weight_hh_l{layer}").copy_(h.T)
            getattr(lstm, f"bias_ih_l{layer}").copy_(b)
            getattr(lstm, f"bias_hh_l{layer}").zero_()
        lstm.weight_ih_l1.copy_(decoder.input_2.T)
    c1, h1, c2, h2 = torch.randn(4, 3, 5, dtype=torch.float64, generator=random)
    upper, _ = lstm(torch.zeros(1, 3, 5, dtype=torch.float64), (torch.stack([h1, h2]), torch.stack([c1, c2])))
    expected = upper[0] @ decoder.dense.weight + decoder.dense.bias
    torch.testing.assert_close(decoder(torch.cat([c1, h1, c2, h2], dim=1)), expected)


def test_every_gate_is_initialised_on_its_own() -> None:
    cell = cell_of(16)
    for kernel in (cell.hidden_1, cell.hidden_2):
        for gate in kernel.chunk(4, dim=1):
            torch.testing.assert_close(gate @ gate.T, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-5)
    bound = (6 / 32) ** 0.5
    for kernel in (cell.input_1, cell.input_2):
        for gate in kernel.chunk(4, dim=1):
            assert 0.9 * bound < gate.abs().max() <= bound
    assert not cell.bias_1.any()
    assert not cell.bias_2.any()
    assert 0.99 < cell.embedding.abs().max() <= 1


def test_dense_is_xavier_with_zero_bias() -> None:
    dense = Dense(30, 10, torch.Generator().manual_seed(0))
    bound = (6 / 40) ** 0.5
    assert 0.9 * bound < dense.weight.abs().max() <= bound
    assert not dense.bias.any()
    x = torch.randn(3, 30, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(dense(x), torch.nn.functional.linear(x, dense.weight.T, dense.bias))


def test_weights_follow_from_the_seed_alone() -> None:
    first, again, other = cell_of(4, 1), cell_of(4, 1), cell_of(4, 2)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
    assert not torch.equal(first.embedding, other.embedding)
