"""Formulas of docstrings, which terminals show as they are written, as formulas on the pages of the reference."""

import re

# What stands in docstrings, without its spaces and line ends, and what it means.
FORMULAS = {
    "min over w, b sum_i s_i a f((1 - y_i (w.x_i + b)) / a) + (l2/2) ||w||^2, a = sigma ||w||":
        r"\min_{w, b} \sum_i s_i\, a\, f\!\left(\frac{1 - y_i (w \cdot x_i + b)}{a}\right) + \frac{l_2}{2} \|w\|^2 \\"
        r"a = \sigma \|w\|",
    "min over W, b sum_i s_i sum_{k != y_i} a f((1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k)) / a) "
    "+ (l2/2) sum_{c<k} ||w_c - w_k||^2, a = sigma ||w_{y_i} - w_k||":
        r"\min_{W, b} \sum_i s_i \sum_{k \ne y_i} a\, f\!\left(\frac{1 - (w_{y_i} - w_k) \cdot x_i - (b_{y_i} - b_k)}{a}"
        r"\right) + \frac{l_2}{2} \sum_{c < k} \|w_c - w_k\|^2 \\ a = \sigma \|w_{y_i} - w_k\|",
    "sigma_max = S_min ||mu_+ - mu_-|| / (S_maj f*(S_min / S_maj)), f*(alpha) = phi(Phi^-1(alpha))":
        r"\sigma_{\max} = \frac{S_{\min} \|\mu_+ - \mu_-\|}{S_{\mathrm{maj}}\, f^*(S_{\min} / S_{\mathrm{maj}})} \\"
        r"f^*(\alpha) = \varphi(\Phi^{-1}(\alpha))",
    "min over w, b (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) + delta ||w||)":
        r"\min_{w, b} \frac{\lambda}{2} \|w\|^2 + \sum_i s_i \max(0,\; 1 - y_i (w \cdot x_i + b) + \delta \|w\|)",
    "min over W, b (lam/2) sum_c ||w_c||^2 + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k) "
    "+ delta ||w_{y_i} - w_k||)":
        r"\min_{W, b} \frac{\lambda}{2} \sum_c \|w_c\|^2 + \sum_i s_i \max\left(0,\; \max_{k \ne y_i} 1 - (w_{y_i} - w_k)"
        r" \cdot x_i - (b_{y_i} - b_k) + \delta \|w_{y_i} - w_k\|\right)",
    "min over w, b (lam/2) ||w||^2 + sum_i s_i max(0, 1 - y_i (w.x_i + b) - delta_i ||w||)":
        r"\min_{w, b} \frac{\lambda}{2} \|w\|^2 + \sum_i s_i \max(0,\; 1 - y_i (w \cdot x_i + b) - \delta_i \|w\|)",
    "min over W, b (lam/2) sum_c ||w_c||^2 + sum_i s_i max(0, max_{k != y_i} 1 - (w_{y_i} - w_k).x_i - (b_{y_i} - b_k) "
    "- delta_i ||w_{y_i} - w_k||)":
        r"\min_{W, b} \frac{\lambda}{2} \sum_c \|w_c\|^2 + \sum_i s_i \max\left(0,\; \max_{k \ne y_i} 1 - (w_{y_i} - w_k)"
        r" \cdot x_i - (b_{y_i} - b_k) - \delta_i \|w_{y_i} - w_k\|\right)",
    "min over w, b sum_i s_i a f((1 - y_i (<w, kappa(x_i, .)> + b)) / a) + (l2/2) ||w||^2, a = sigma ||w||":
        r"\min_{w, b} \sum_i s_i\, a\, f\!\left(\frac{1 - y_i (\langle w, \kappa(x_i, \cdot) \rangle + b)}{a}\right) + "
        r"\frac{l_2}{2} \|w\|^2 \\ a = \sigma \|w\|",
    "E w(x_i) = <w, E kappa(x_i, .)>, a_i^2 = sigma^2 ||w||^2 + g_i' S_i g_i, g_i = E grad w(x_i)":
        r"\mathrm{E}\, w(x_i) &= \langle w, \mathrm{E}\, \kappa(x_i, \cdot) \rangle \\ "
        r"a_i^2 &= \sigma^2 \|w\|^2 + g_i^\top S_i\, g_i, \quad g_i = \mathrm{E}\, \nabla w(x_i)",
    "t_i | x_i ~ sum_k q_ik N(m_ik, V_ik) m_ik = mu_k + T_k (T_k + S_i)^-1 (x_i - mu_k) "
    "q_ik ~ pi_k N(x_i; mu_k, T_k + S_i) V_ik = T_k - T_k (T_k + S_i)^-1 T_k":
        r"t_i \mid x_i &\sim \sum_k q_{ik}\, N(m_{ik}, V_{ik}), \quad q_{ik} \propto \pi_k\, N(x_i;\, \mu_k, T_k + S_i) \\"
        r"m_{ik} &= \mu_k + T_k (T_k + S_i)^{-1} (x_i - \mu_k) \\ V_{ik} &= T_k - T_k (T_k + S_i)^{-1} T_k",
    "P(c | x, S) ~ P(c) p_c(x, S), p_c(x, S) = sum_k pi_ck N(x; mu_ck, T_ck + S)":
        r"P(c \mid x, S) &\propto P(c)\, p_c(x, S) \\ p_c(x, S) &= \sum_k \pi_{ck}\, N(x;\, \mu_{ck}, T_{ck} + S)",
    "P(y = 1 | x) = Phi((alpha m + beta) / sqrt(1 + alpha^2 kappa^2 s^2))":
        r"P(y = 1 \mid x) = \Phi\!\left(\frac{\alpha m + \beta}{\sqrt{1 + \alpha^2 \kappa^2 s^2}}\right)",
    "P(c | x) = P(alpha m_c + beta_c + e_c + alpha kappa n_c is largest), e ~ N(0, I/2), n ~ N(0, W V W')":
        r"P(c \mid x) = P(\alpha m_c + \beta_c + e_c + \alpha \kappa n_c \text{ is largest}) \\"
        r"e \sim N(0, I/2), \quad n \sim N(0, W V W^\top)",
    "P(c | x, err) ~ (sum_m w_m(err) P_m(c | x, err))^a(err), w_m >= 0, sum_m w_m = 1":
        r"P(c \mid x, err) \propto \left(\sum_m w_m(err)\, P_m(c \mid x, err)\right)^{a(err)} \\"
        r"w_m \ge 0, \quad \sum_m w_m = 1",
    "P(y = 1 | x, err) = Phi((alpha (w.m + b) + beta) / sqrt(1 + alpha^2 kappa^2 w' V w))":
        r"P(y = 1 \mid x, err) = \Phi\!\left(\frac{\alpha (w \cdot m + b) + \beta}{\sqrt{1 + \alpha^2 \kappa^2\, w^\top V w}}"
        r"\right)",
    "mean x + sqrt(2/pi) (upper - lower) variance (1 - 2/pi) (upper - lower)^2 + upper lower":
        r"\text{mean} &= x + \sqrt{2 / \pi}\, (u - l) \\ \text{variance} &= (1 - 2 / \pi) (u - l)^2 + u\, l",
}  # fmt: skip


def set_formulas(lines):
    """Replace code blocks of docstrings that are in the table, and return how many there were."""
    found, k = 0, 0
    while k < len(lines):
        k += 1
        if not lines[k - 1].rstrip().endswith("::") or lines[k - 1].lstrip().startswith(".. "):
            continue
        indent = len(lines[k - 1]) - len(lines[k - 1].lstrip())
        end = k
        while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
            end += 1
        formula = FORMULAS.get(" ".join(" ".join(lines[k:end]).split()))
        if formula is None:
            continue
        text = re.sub(r"\s?::$", lambda match: "" if match[0][0] == " " else ":", lines[k - 1].rstrip())
        text = "" if text.strip() == ":" else text
        lines[k - 1 : end] = [text, "", f"{' ' * indent}.. math:: {formula}", ""]
        found += 1
    return found


def setup(app):
    app.connect(
        "autodoc-process-docstring", lambda app, what, name, obj, options, lines: set_formulas(lines), priority=0
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
