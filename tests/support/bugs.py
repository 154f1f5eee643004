"""The bugs that tests/planted_bugs.py plants, each with the test that must catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A textual change of one file, and the test that must fail for it."""

    name: str
    file: str
    old: str
    new: str
    test: str


EXACT = "core/test_exact.py::test_value_and_gradient_equal_a_loop_over_z"
SCORE = "core/test_estimators.py::test_score_function_gradient_is_unbiased"
PIECES = "core/test_pieces.py::test_pieces_give_what_the_whole_gives_with_the_same_noise"
PADDING = "core/test_padding.py::test_padding_never_matters_bit_for_bit"

BUGS = [
    Bug(
        "mask dropped from the softmax",
        "core/numerics.py",
        "finite = scores.masked_fill(~exists, NEG_INF)",
        "finite = scores",
        "core/test_distributions.py::test_categorical_agrees_with_torch_on_the_members_that_exist",
    ),
    Bug(
        "a row without members not guarded",
        "core/numerics.py",
        "peak = peak.masked_fill(peak == NEG_INF, 0.0)",
        "pass",
        "core/test_support.py::test_a_sum_over_nothing_is_minus_infinity_without_gradient",
    ),
    Bug(
        "padding mask inverted",
        "nn/attention.py",
        "exists = ~key_padding",
        "exists = key_padding",
        f"{PADDING}[nan-marginal]",
    ),
    Bug(
        "padding multiplied by zero instead of cut out",
        "nn/attention.py",
        "memory = memory.masked_fill(~exists.unsqueeze(-1), 0.0)",
        "memory = memory * exists.unsqueeze(-1)",
        f"{PADDING}[nan-soft]",
    ),
    Bug(
        "advantage not detached",
        "core/expectations.py",
        "advantage = (reward - self.baseline(latent, reward)).detach()",
        "advantage = reward - self.baseline(latent, reward)",
        f"{SCORE}[hard-soft-1-<lambda>]",
    ),
    Bug(
        "baseline added instead of subtracted",
        "core/expectations.py",
        "advantage = (reward - self.baseline(latent, reward)).detach()",
        "advantage = (reward + self.baseline(latent, reward)).detach()",
        "core/test_baselines.py::test_baselines_reduce_the_variance_of_the_score_function",
    ),
    Bug(
        "baseline looks at its own draw",
        "core/baselines.py",
        "return (reward.sum(-1, keepdim=True) - reward) / (n - 1)",
        "return reward.mean(-1, keepdim=True).expand_as(reward)",
        f"{SCORE}[hard-leave-one-out-2-<lambda>]",
    ),
    Bug(
        "running mean updated before it answers",
        "core/baselines.py",
        "answer = (self.mean / self.seen.clamp_min(1e-12)).to(reward.dtype)",
        "answer = (self.fit(latent, reward.mean(-1)).sum() * 0 + self.mean / self.seen).to(reward.dtype)",
        "core/test_baselines.py::test_running_mean_knows_nothing_of_the_draws_it_answers_for",
    ),
    Bug(
        "learned baseline trains the model",
        "core/baselines.py",
        "query = latent.query.detach().to(",
        "query = latent.query.to(",
        "core/test_baselines.py::test_a_learned_baseline_is_fitted_without_touching_the_model",
    ),
    Bug(
        "top-k not renormalised",
        "core/distributions/categorical.py",
        "self.one_hot(index, masked_log_softmax(log_prob, log_prob > NEG_INF), log_prob)",
        "self.one_hot(index, log_prob, log_prob)",
        "core/test_distributions.py::test_top_k_is_renormalised_and_of_all_positions_is_exact",
    ),
    Bug(
        "weights of the enumeration without gradient",
        "core/distributions/categorical.py",
        "self.one_hot(index.expand(self.log_probs.shape), self.log_probs, self.log_probs)",
        "self.one_hot(index.expand(self.log_probs.shape), self.log_probs.detach(), self.log_probs)",
        f"{EXACT}[True-1-batch1-marginal]",
    ),
    Bug(
        "KL reversed",
        "core/objectives/bounds.py",
        "kl = q.kl(latent.prior)",
        "kl = latent.prior.kl(q)",
        f"{EXACT}[True-1-batch1-variational-enum]",
    ),
    Bug(
        "KL weight in the reported bound",
        "core/objectives/bounds.py",
        "Estimate(fit.value - kl,",
        "Estimate(fit.value - self.kl_weight * kl,",
        "core/test_objectives.py::test_kl_weight_leaves_the_reported_bound_alone",
    ),
    Bug(
        "expectation under the prior instead of q",
        "core/objectives/bounds.py",
        "fit = self.expect(latent, q, draws)",
        "fit = self.expect(latent, latent.prior, draws)",
        f"{EXACT}[True-1-batch1-variational-enum]",
    ),
    Bug(
        "samples weighted 1 instead of 1/n",
        "core/distributions/categorical.py",
        "torch.full_like(log_prob, -math.log(log_prob.shape[-1]))",
        "torch.zeros_like(log_prob)",
        "core/test_distributions.py::test_samples_are_members_that_exist_and_weights_have_no_gradient",
    ),
    Bug(
        "log(n) rounded to float32",
        "core/distributions/categorical.py",
        "-math.log(log_prob.shape[-1])",
        "-torch.tensor(float(log_prob.shape[-1])).log().item()",
        f"{SCORE}[hard-leave-one-out-3-<lambda>]",
    ),
    Bug(
        "sum-and-sample: leftover mass of the wrong members",
        "core/expectations.py",
        "left = over.enumerate().log_weight.detach().exp().masked_fill(~rest.mask, 0.0)",
        "left = over.enumerate().log_weight.detach().exp().masked_fill(rest.mask, 0.0)",
        "core/test_estimators.py::test_sum_and_sample_is_unbiased_where_several_members_are_left[1]",
    ),
    Bug(
        "importance weights without q",
        "core/objectives/multisample.py",
        "fixed = (log_prior - drawn.log_prob).masked_fill",
        "fixed = log_prior.masked_fill",
        "core/test_estimators.py::test_rws_tends_to_the_marginal_gradient_with_many_samples",
    ),
    Bug(
        "reweighted wake-sleep forgets log q",
        "core/objectives/multisample.py",
        "moving = log_prior + drawn.log_prob",
        "moving = log_prior",
        "core/test_estimators.py::test_rws_moves_q_towards_the_exact_posterior",
    ),
    Bug(
        "equal draws counted once",
        "core/alignments.py",
        "return replace(self, log_weight=log_sum_exp(weight))",
        "return replace(self, log_weight=weight.amax(-1))",
        "core/test_estimators.py::test_merging_equal_draws_keeps_every_average",
    ),
    Bug(
        "VIMCO: geometric mean over all draws",
        "core/objectives/multisample.py",
        "mean = (log_weight.sum(-1, keepdim=True) - log_weight) / count.clamp_min(1)",
        "mean = log_weight.mean(-1, keepdim=True).expand_as(log_weight)",
        "core/test_estimators.py::test_vimco_gradient_is_unbiased_for_its_own_bound[2]",
    ),
    Bug(
        "posterior without the prior",
        "core/distributions/base.py",
        "Categorical.from_scores(log_prior + self.log_likelihoods(latent)",
        "Categorical.from_scores(self.log_likelihoods(latent)",
        "core/test_exact.py::test_the_posterior_is_bayes_rule",
    ),
    Bug(
        "certified marginal: tail starts one member late",
        "core/kernels/certified.py",
        "rest = ranking.left.gather(-1, plan.visited.clamp",
        "rest = ranking.left.gather(-1, (plan.visited + 1).clamp",
        "core/test_bounds.py::test_certified_marginal_keeps_its_promise",
    ),
    Bug(
        "certified marginal: one member too few",
        "core/kernels/certified.py",
        "needed = (ranking.left > allowed).sum(-1).clamp_min(1)",
        "needed = ((ranking.left > allowed).sum(-1) - 1).clamp_min(1)",
        "core/test_certified.py::test_the_certificate_holds_for_every_head",
    ),
    Bug(
        "certified marginal: the unvisited are guessed at the wrong members",
        "core/kernels/certified.py",
        "unvisited = torch.zeros_like(unvisited).scatter(-1, order, unvisited)",
        "unvisited = unvisited.clone()",
        "core/test_certified.py::test_the_guess_brings_the_priors_gradient_nearer_and_leaves_all_others[0.05-12]",
    ),
    Bug(
        "certified marginal: the guess is the bound itself",
        "core/kernels/certified.py",
        "guess = screened + torch.where(possible, 0.0, lowest) - slack",
        "guess = screened + torch.where(possible, 0.0, lowest) - 0 * slack",
        "core/test_certified.py::test_the_guess_brings_the_priors_gradient_nearer_and_leaves_all_others[0.05-3]",
    ),
    Bug(
        "screened bound: the target is counted twice",
        "core/kernels/screening.py",
        "bound = own - torch.where(listed[target], log_sum, torch.logaddexp(own, log_sum))",
        "bound = own - torch.logaddexp(own, log_sum)",
        "core/test_certified.py::test_the_screened_bound_is_above_the_likelihood_and_tightens_with_the_shortlist",
    ),
    Bug(
        "sampled tail without its weight",
        "core/kernels/certified.py",
        "weight = (log_prob - plan.log_proposal).masked_fill",
        "weight = log_prob.masked_fill",
        "core/test_certified.py::test_the_sampled_tail_is_unbiased_for_the_likelihood",
    ),
    Bug(
        "noise of a member is drawn again",
        "core/kernels/screening.py",
        "self.drawn[new] = True",
        "self.drawn[new] = False",
        "core/test_certified.py::test_noise_is_drawn_once_for_every_member",
    ),
    Bug(
        "members left out unscreened are forgotten by the certificate",
        "core/kernels/certified.py",
        "left = bound.flip(-1)",
        "left = bound.masked_fill(bound < -9, NEG_INF).flip(-1)",
        "core/test_certified.py::test_the_certificate_holds_for_every_head",
    ),
    Bug(
        "oneDNN: the last rows of a sum are lost",
        "core/products.py",
        "return found if whole == len(left) else found.addmm_(across[:, whole:], right[whole:])",
        "return found",
        "core/test_products.py::test_sum_over_any_number_of_rows",
    ),
    Bug(
        "certificate and value see two dropout masks",
        "core/kernels/screening.py",
        "self.hidden(self.pair.gather(-1, alignments.index).flatten()[pairs.slot])",
        "self.parts.rows(self.pair.gather(-1, alignments.index).flatten()[pairs.slot])",
        "core/test_certified.py::test_bound_probe_and_value_see_the_same_dropout",
    ),
    Bug(
        "SVI step without the divergence",
        "core/objectives/svi.py",
        "return (likelihood - self.kl_weight * divergence)",
        "return likelihood",
        "core/test_estimators.py::test_svi_step_is_the_gradient_of_the_elbo_in_expectation",
    ),
    Bug(
        "one dropout mask for all alignments of a query",
        "nn/heads.py",
        "self.dropout(self.activated(query_part, memory_part))",
        "self.activation(self.dropout(query_part[:1]) + query_part - query_part[:1] + memory_part)",
        "core/test_emission.py::test_each_alignment_has_its_own_dropout_mask",
    ),
    Bug(
        "emission forgets the gradient of the bias",
        "core/kernels/fused_softmax.py",
        "self.by_bias.addmv_(e.t(), scale)",
        "pass",
        "core/test_emission.py::test_chunked_emission_matches_dense[batch1-True-13-enumerate]",
    ),
    Bug(
        "head's gradient of the last chunk alone",
        "core/kernels/fused_softmax.py",
        "add_product_over_rows(self.by_output, e, hidden * scale.unsqueeze(1))",
        "self.by_output = e.t() @ (hidden * scale.unsqueeze(1))",
        "core/test_fused_softmax.py::test_fused_averages_of_many_chunks_equal_a_loop_over_z[True-marginal]",
    ),
    Bug(
        "gradient of the last piece alone",
        "core/kernels/pieces.py",
        "sums[i] = add_gradient(sums[i], gradient)",
        "sums[i] = gradient",
        f"{PIECES}[True-log_marginal]",
    ),
    Bug(
        "pieces computed again with other noise",
        "core/kernels/pieces.py",
        "torch.set_rng_state(self.state)",
        "pass",
        f"{PIECES}[False-log_marginal]",
    ),
    Bug(
        "fused average assumes that all queries count alike",
        "core/kernels/fused_softmax.py",
        "if is_even(grad):\n            scale",
        "if len(grad):\n            scale",
        f"{EXACT}[False-4194304-batch0-marginal]",
    ),
    Bug(
        "Dirichlet's total counts masked members",
        "core/distributions/dirichlet.py",
        "total = self.concentration.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True)",
        "total = self.concentration.sum(-1, keepdim=True)",
        "core/test_distributions.py::test_dirichlet_agrees_with_torch_on_the_members_that_exist",
    ),
    Bug(
        "Dirichlet draws below concentration 1 not divided by it",
        "core/distributions/dirichlet.py",
        "small * log_u / alpha",
        "small * log_u",
        "core/test_distributions.py::test_dirichlet_pathwise_gradient_agrees_with_quadrature[alpha0]",
    ),
    Bug(
        "Gumbel noise of the wrong sign",
        "core/distributions/categorical.py",
        "-torch.empty(shape, dtype=self.log_probs.dtype, device=self.log_probs.device).exponential_().log()",
        "torch.empty(shape, dtype=self.log_probs.dtype, device=self.log_probs.device).exponential_().log()",
        "core/test_estimators.py::test_chi_square_of_the_sampler",
    ),
    Bug(
        "a curvature constant that is too small",
        "core/diagnostics.py",
        "SOFTMAX_CURVATURE = 8 / 27",
        "SOFTMAX_CURVATURE = 4 / 27",
        "core/test_diagnostics.py::test_the_softmax_constant_bounds_random_hessians",
    ),
    Bug(
        "the posterior network reads targets at padding",
        "nn/attention.py",
        "target = target.masked_fill(~mask.any(-1), 0)",
        "pass",
        "core/test_padding.py::test_targets_at_padding_may_be_any_number[1000000]",
    ),
    Bug(
        "the best bound is forgotten",
        "training/schedule.py",
        "self.best_bound = min(self.best_bound, bound)",
        "self.best_bound = bound",
        "training/test_schedule.py::test_the_rate_falls_while_the_bound_is_above_the_best_even_if_it_falls",
    ),
    Bug(
        "the random state is not restored after a validation",
        "training/loop.py",
        "checkpoint.restore_random_state(random)",
        "pass",
        "training/test_loop.py::test_validating_more_often_changes_no_weight",
    ),
    Bug(
        "chrF ignores lowercase",
        "tasks/nmt/text_scores.py",
        "sacrebleu.CHRF(lowercase=config.tokenizer.lowercase)",
        "sacrebleu.CHRF()",
        "tasks/nmt/test_text_scores.py::test_both_scores_ignore_case_if_the_tokenizer_does",
    ),
    Bug(
        "grow-diag lacks a diagonal neighbour",
        "links/sets.py",
        "(-1, 1), (1, 1))",
        "(-1, 1))",
        "links/test_links.py::test_growth_reaches_all_eight_neighbours[33]",
    ),
    Bug(
        "certified decoding counts the end of sentence under eos_norm",
        "tasks/nmt/decode.py",
        "never=(PAD, BOS, EOS)",
        "never=(PAD, BOS)",
        "tasks/nmt/test_decode.py::"
        "test_certified_decoding_gives_the_end_of_sentence_no_place_that_eos_norm_takes_away",
    ),
    Bug(
        "half an overlap is none",
        "tasks/vqa/evaluate.py",
        "intersection_over_union(box, other) >= OVERLAP",
        "intersection_over_union(box, other) > OVERLAP",
        "tasks/vqa/test_training.py::test_boxes_overlap",
    ),
]
