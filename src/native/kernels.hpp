// The loops over rows, behind one table of function pointers for each instruction set.
//
// Every function works on rows [begin, end), writes only its own output and adds to what it finds there,
// so that a caller may map it over row blocks from several threads. rows.py decides on rows, the number of threads
// and the order in which partial sums are added.
#pragma once
#include <cstdint>

// Not inlined: copies in every instance of the callers would take most of the compile time.
#ifdef _MSC_VER
#define GAUSSGURU_APART __declspec(noinline)
#else
#define GAUSSGURU_APART __attribute__((noinline))
#endif

namespace gaussguru {

enum ValueType : int { FLOAT32 = 0, FLOAT64 = 1 };
enum IndexType : int { DENSE = 0, INT32 = 1, INT64 = 2 };

// A borrowed view of X: C-contiguous rows (DENSE) or CSR with sorted, distinct column indices.
struct Matrix {
    const void* values;
    const void* indices;  // null when DENSE
    const void* indptr;   // null when DENSE
    int64_t n_columns;
    int value_type;
    int index_type;
};

// Row i of the binary problem at the point (c w, b): signed weight s y, margin q = w.x,
// slack m = 1 - y (c q + b), standardised slack z = m / scale.
struct Pointwise {
    const double* signed_weight;
    const double* margin;
    double stretch;    // c
    double intercept;  // b
    double scale;      // a, the standard deviation of (c w).noise
};

// The weights of X in gradient and Hessian, one number a row each.
struct Slopes {
    double* residual;  // s y f'(z)
    double* weight;    // s f''(z) / a
    double* tilt;      // y z
};

// Some columns of X: of column index[k] the rows and values from start[k] to start[k + 1].
struct Columns {
    int64_t n;
    const int64_t* index;
    const int64_t* start;
    const int64_t* row;
    const double* value;
};

enum LossCode : int { GAUSSIAN = 0, LOGISTIC, QUADRATIC, MOMENT };

// The indices of the six sums of totals(): Totals in _guru/problems/binary.py.
enum Total : int { VALUE = 0, SLOPE_POS, SLOPE_NEG, CURVE_POS, CURVE_NEG, CONJUGATE, N_TOTALS };

// The multiclass problem at (c W, b): labels 0..n_classes-1, weights s, scores X W' (a row each), the scale of
// w_c - w_k for every pair of classes.
struct Joint {
    int64_t n_classes;
    const int32_t* labels;
    const double* weights;
    const double* scores;
    double stretch;
    const double* intercepts;
    const double* scales;
};

// For every row and class, at [row * n_classes + class]: the derivative of the loss by the score of the class,
// s f''/a and z. All three are null if they are not needed.
struct JointPulls {
    double* residual;
    double* curve;
    double* tilt;
};

// The sums over a cell (the rows of class c against class k, at [c * n_classes + k]).
enum CellSum : int { CELL_VALUE = 0, CELL_SLOPE, CELL_CONJUGATE, CELL_CURVE, CELL_CURVE_Z, CELL_CURVE_ZZ, N_CELL };

// The rows that stochastic gradient descent visits, in this order.
struct Draws {
    int64_t n;
    const int64_t* order;
    const double* weight;  // of every row of X; signed where there are two classes
};

// Step t = steps + 1, steps + 2, ... has the length eta0 / sqrt(t).
struct Descent {
    double sigma, l2, eta0;
    int64_t steps;
    int fit_intercept;
};

// The iterate, and the sums of all iterates; no sums if the totals are null.
struct Iterate {
    double* coef;
    double* intercept;
    double* coef_total;
    double* intercept_total;
};

// The classes of the rows of X and, for M-GURU-S2, the one class that moves in each step.
struct Labels {
    int64_t n_classes;
    const int32_t* label;
    const int32_t* moved;  // null: all classes move
};

// Rows with errors: standard deviations for every row and column of X, and a weight for every row, negative for the
// rows of the second class of a difference.
struct MeasuredRows {
    int64_t n;
    const int64_t* index;
    const double* errors;
    const double* weight;
};

// The difference u of two classes, the squares of its entries, the difference of the intercepts, and the variance of
// the score that all rows share. For a product also a step p, the entries of u p, the step of the intercept, u' N p.
struct MeasuredPlace {
    const double* u;
    const double* squares;
    double b, own;
};

// Rows from which an adversary deletes up to n_drop values: labels 0..n_classes-1, W of n_classes x n_columns, the
// smoothing mu, and for each row the weight that is a rounding; arrays of rows have n_classes numbers a row.
struct Drops {
    int64_t n_classes;
    const int32_t* labels;
    const double* W;
    int64_t n_drop;
    double blur;
    const double* least;
    double log_above, log_columns;  // log(n_drop + 1), log(n_columns)
};

// Rows of a kernel matrix, one for each step, and the samples that they belong to.
struct KernelRows {
    const double* values;
    const double* squared_norm;  // of the sample
    const int64_t* place;
    int64_t n_columns;
};

// The number of samples that are interleaved in the matrices J of whiten().
constexpr int64_t kSamples = 8;

// n samples under a Gaussian of covariance T: x - mean, and flags of measured values (null: all are). The noise of a
// sample has n_features variances or, if it is correlated, a covariance.
struct Cloud {
    int64_t n, n_features;
    const double* T;
    const double* noise;
    const double* residuals;
    const unsigned char* known;
    int correlated;
};

// The number of coefficients per feature, padded, for n_classes classes.
inline int64_t padded(int64_t n_classes) { return (n_classes + 3) / 4 * 4; }

struct Kernels {
    const char* name;

    // f, f', f'' of n numbers.
    void (*evaluate)(int loss, int64_t n, const double* z, double* f, double* slope, double* curvature);

    // Sums over rows of s f, s f' and s f'' (by label) and s (f - z f').
    void (*totals)(int loss, int64_t begin, int64_t end, const Pointwise&, double* sums);

    // For each row s y f'(z), s f''(z)/a and y z: the weights of X in gradient and Hessian.
    void (*slopes)(int loss, int64_t begin, int64_t end, const Pointwise&, const Slopes&);

    // A close lower bound of the sum of s f*(factor f'(z)).
    double (*shrunk_conjugate)(int loss, int64_t begin, int64_t end, const Pointwise&, double factor);

    // margins, totals and combine of the residuals at w in one pass over X. Only the margins of the rows are stored,
    // because writing more takes as long as reading ten columns. If they are not null,
    // curves += the sums of weight_i x_i by label, in the layout of combine(), and
    // squares[j] += sum_i s_i x_ij^2: not finite if any value of X is not, whatever its weight.
    void (*visit)(int loss, const Matrix&, int64_t begin, int64_t end, const double* w, const Pointwise& at,
                  double* margin, double* sums, double* out, double* curves, double* squares);

    // out[i] = x_i . w
    void (*margins)(const Matrix&, int64_t begin, int64_t end, const double* w, double* out);

    // out[0] += sum r_i x_i over the rows with r_i >= +0, out[1] over the others (each n_columns long). A residual has
    // the sign of its label, so these are the sums by label.
    void (*combine)(const Matrix&, int64_t begin, int64_t end, const double* r, double* out);

    // With t_i = x_i . p + tilt_i eta + shift:  out += sum_i weight_i t_i x_i,
    // sums += sum_i weight_i t_i (tilt_i, 1).
    void (*product)(const Matrix&, int64_t begin, int64_t end, const double* weight, const double* tilt,
                    const double* p, double eta, double shift, double* out, double* sums);

    // Lower triangle of sum_i weight_i u_i u_i', u_i = (x_i + tilt_i direction, 1), or (x_i, tilt_i, 1) if direction is
    // null. out has one row more than u, and rows `stride` numbers apart, a multiple of 8 above the length of u.
    void (*gram)(const Matrix&, int64_t begin, int64_t end, const double* weight, const double* tilt,
                 const double* direction, double* out, int64_t stride);

    // Dual coordinate descent for (1/2)|params|^2 + cap sum s max(0, 1 - y (x, bias).params), in the given order:
    // one exact step in each alpha, with params = sum y alpha (x, bias) kept up to date. Sequential.
    void (*coordinate_pass)(const Matrix&, int64_t n, const int64_t* order, const double* signed_weight, double cap,
                            double bias, double* alpha, double* params);

    // Minimise F by the coefficients of the given columns, one after another, |w_j| <= most, and update the margins.
    // Forces below least count as 0. Returns an estimate of the decrease of F. Sequential.
    double (*sweep)(int loss, const Columns&, const Pointwise&, double l2, double most, double least, double* w,
                    double* margin);

    // One step of GURU for each drawn row; returns the updated ||w||^2, to be compared with the true one.
    double (*sgd_pass)(int loss, const Matrix&, const Draws&, const Descent&, const Iterate&);

    // One step of KEN-GURU for each drawn row: coefficients of the samples, starting from a given ||w||^2.
    double (*kernel_pass)(int loss, const KernelRows&, const Draws&, const Descent&, const Iterate&, double square);

    // One step of GURU for each drawn row, with standard deviations for every row and column.
    void (*measured_pass)(int loss, const Matrix&, const double* errors, const Draws&, const Descent&, const Iterate&);

    // One step of M-GURU, or of M-GURU-S2, for each drawn row. Coefficients are features x padded(n_classes), with
    // zeros in the padding.
    void (*sgd_joint_pass)(int loss, const Matrix&, const Draws&, const Descent&, const Labels&, const Iterate&);

    // out[i] = ||x_i||^2
    void (*squared_norms)(const Matrix&, int64_t begin, int64_t end, double* out);

    // peaks[j] = max(peaks[j], |x_ij|), and counts[j] += 1 for every nonzero x_ij.
    void (*column_sizes)(const Matrix&, int64_t begin, int64_t end, double* peaks, double* counts);

    // out[i] = sum_j scale_j x_ij^2
    void (*leverages)(const Matrix&, int64_t begin, int64_t end, const double* scale, double* out);

    // out = combine() of the signed weights; squares as in visit().
    void (*moments)(const Matrix&, int64_t begin, int64_t end, const double* signed_weight, double* out,
                    double* squares);

    // a and z of every row. out has, first for rows of positive and then for rows of negative weight, the sums of
    // s f' x and of s (f - z f')/a e^2 by column, and of s a f, s f', s (f - z f')/a and s f.
    void (*measured)(int loss, const Matrix&, const MeasuredRows&, const MeasuredPlace&, double* scale, double* slack,
                     double* out);

    // For the Hessian times a step: the sums of bent x, of turned e^2, of bent and of turned (measured.cpp).
    void (*measured_product)(int loss, const Matrix&, const MeasuredRows&, const MeasuredPlace&, const double* scale,
                             const double* slack, double* out);

    // The Hessian without its diagonal part, as gram(); own is N u.
    void (*measured_gram)(int loss, const Matrix&, const MeasuredRows&, const double* u, const double* own,
                          const double* scale, const double* slack, double* out, int64_t stride);

    // Close lower bounds of the sums of r e by column, of r, and of sqrt(r s f*), r = s (f*(factor f') - factor f*),
    // first for rows of positive and then for rows of negative weight. Without errors the first sum is left out.
    void (*measured_room)(int loss, const MeasuredRows&, int64_t n_columns, const double* slack, double factor,
                          double* out);

    // The sum of n numbers, finite only if all of them are, and the least number, unless one is NaN.
    void (*survey)(int64_t n, const double* values, double* sum, double* least);

    // The sums of x - shift and of its square by column; over the stored entries if X is sparse.
    void (*column_sums)(const Matrix&, int64_t begin, int64_t end, const double* shift, double* sums, double* squares);

    // Sums over every cell of s f, s f', s (f - z f'), s f'', s f'' z and s f'' z^2, and the pulls of every row.
    void (*cells)(int loss, int64_t begin, int64_t end, const Joint&, const JointPulls&, double* sums);

    // For every cell a close lower bound of the sum of s f*(factor f'(z)).
    void (*shrunk_cells)(int loss, int64_t begin, int64_t end, const Joint&, double factor, double* sums);

    // With t = (q_c + shift_c) - (q_k + shift_k) + z eta_ck and u = curve t for a row of class c: out_k = -u,
    // out_c = the sum of the u; turns_ck += u z.
    void (*bend)(int64_t begin, int64_t end, int64_t n_classes, const int32_t* labels, const double* scores,
                 const double* shifts, const double* eta, const double* curve, const double* tilt, double* out,
                 double* turns);

    // For a row of class c and every other class k: the smooth sum h of its largest terms, with numbers from which the
    // deleted shares p are computed fast (guesses of them, or 0, come in); the change of h for a step of W; the sum of r times the gradients of h, or of
    // its Hessians times a step, by class; that of the Hessians of each pair of classes, at [c, k] for c < k, its lower
    // triangle; for two classes that of curve u u', u = (x - p x, 1), its lower triangle; p x, a dense row each.
    void (*drop_support)(const Matrix&, int64_t n, const Drops&, double* reached, double* states);
    void (*drop_along)(const Matrix&, int64_t n, const Drops&, const double* states, const double* P, double* out);
    void (*drop_pull)(const Matrix&, int64_t n, const Drops&, const double* states, const double* residual,
                      const double* P, double* out);
    void (*drop_bends)(const Matrix&, int64_t n, const Drops&, const double* states, const double* residual,
                       double* out);
    void (*drop_gram)(const Matrix&, int64_t n, const Drops&, const double* states, const double* curve, double* out,
                      int64_t stride);
    void (*drop_moves)(const Matrix&, int64_t n, const Drops&, const double* states, double* out);

    // out = X w and out += X' r, for w and out of n_columns x n_classes and a vector of n_classes a row.
    void (*joint_scores)(const Matrix&, int64_t begin, int64_t end, int64_t n_classes, const double* w, double* out);
    void (*joint_combine)(const Matrix&, int64_t begin, int64_t end, int64_t n_classes, const double* r, double* out);

    // With C = T + S, P = C^-1 and r = x - mean of the measured values: -r'P r/2 - log det C/2 and P r of every sample,
    // and J with P = J'J: the lower triangles of kSamples samples at a time, by rows, with 0 for values that were not
    // measured. Returns false if a C is not positive definite.
    bool (*whiten)(const Cloud&, double* logs, double* solved, double* J);

    // out = the sum of q P, and all P, of n samples with d features.
    void (*add_precisions)(int64_t n, int64_t d, const double* J, const double* q, double* out);
    void (*precisions)(int64_t n, int64_t d, const double* J, double* out);
};

namespace baseline {
const Kernels& kernels();
}
namespace x86_64_v3 {
const Kernels& kernels();
}

#ifdef GAUSSGURU_TARGET
// Each unit puts its loops into the table of the instruction set that it is compiled for. Everything else in a unit has
// internal linkage, so that code of one instruction set is not linked into another.
namespace GAUSSGURU_TARGET {
void add_pointwise(Kernels&);
void add_binary(Kernels&);
void add_columns(Kernels&);
void add_joint(Kernels&);
void add_drops(Kernels&);
void add_sgd(Kernels&);
void add_sgd_joint(Kernels&);
void add_measured(Kernels&);
void add_populations(Kernels&);
}  // namespace GAUSSGURU_TARGET
#endif

}  // namespace gaussguru
