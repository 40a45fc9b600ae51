/* Tables indexed by token and by position: embedding and rotary. */

static inline int64_t first_position(const ech_tensor *cell)
{
    return cell->data ? *(const int64_t *)cell->data : 0;
}

/* Row of the share of the table that a token's id has, or -1. */
static inline int64_t local_row(const ech_kernel_call *call, int64_t n, int64_t n_rows)
{
    const int64_t row = ((const int32_t *)call->arg[0].data)[n] - call->attr[0];
    return row >= 0 && row < n_rows ? row : -1;
}

/* y[n] = table[ids[n] - first], 0 where the row is not here */
static void embed(const ech_kernel_call *call)
{
    const int64_t width = call->arg[1].dim[1];
    const size_t bytes = (size_t)width * sizeof(REAL);
    for (int64_t n = 0; n < call->arg[0].dim[0]; n++) {
        const int64_t row = local_row(call, n, call->arg[1].dim[0]);
        REAL *y = out(call, 2) + n * width;
        if (row >= 0)
            memcpy(y, in(call, 1) + row * width, bytes);
        else
            memset(y, 0, bytes);
    }
}

static bool is_first_of_its_id(const int32_t *ids, int64_t n)
{
    for (int64_t m = 0; m < n; m++)
        if (ids[m] == ids[n])
            return false;
    return true;
}

/* dtable[ids[n] - first] += sum over all m with the same id of dy[m].  The first token of an id
 * gathers the others: quadratic in N, but the sum is in double and needs no scratch. */
static void embed_backward(const ech_kernel_call *call)
{
    const int32_t *ids = call->arg[0].data;
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[2].dim[1];
    for (int64_t n = 0; n < n_rows; n++) {
        const int64_t row = local_row(call, n, call->arg[2].dim[0]);
        if (row < 0 || !is_first_of_its_id(ids, n))
            continue;
        for (int64_t c = 0; c < width; c += TILE) {
            double acc[TILE] = {0};
            for (int64_t m = n; m < n_rows; m++)
                if (ids[m] == ids[n])
                    axpy(acc, 1.0, in(call, 1) + m * width + c, tile_size(c, width));
            add_tile(out(call, 2) + row * width + c, acc, tile_size(c, width));
        }
    }
}

/* y[n] += table[start + (token + n) % s] */
static void positions(const ech_kernel_call *call)
{
    const int64_t width = call->arg[0].dim[1];
    const int64_t start = first_position(&call->arg[2]);
    for (int64_t n = 0; n < call->arg[0].dim[0]; n++) {
        const int64_t at = start + (call->attr[1] + n) % call->attr[0];
        const REAL *position = in(call, 1) + at * width;
        REAL *y = out(call, 0) + n * width;
        for (int64_t i = 0; i < width; i++)
            y[i] = (REAL)((double)y[i] + (double)position[i]);
    }
}

/* dtable[(token + n) % s] += sum of dy[n], over the tokens of a position s apart */
static void positions_backward(const ech_kernel_call *call)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const int64_t seq = call->attr[0];
    for (int64_t first = 0; first < seq && first < n_rows; first++) {
        REAL *dtable = out(call, 1) + (call->attr[1] + first) % seq * width;
        for (int64_t c = 0; c < width; c += TILE) {
            double acc[TILE] = {0};
            for (int64_t n = first; n < n_rows; n += seq)
                axpy(acc, 1.0, in(call, 0) + n * width + c, tile_size(c, width));
            add_tile(dtable + c, acc, tile_size(c, width));
        }
    }
}

/* Pair i, (x[i], x[i + half]) or (x[2 i], x[2 i + 1]), turned by the angle whose (cos, sin) is
 * table[i], back for sign = -1. */
static void rotate(REAL *x, const double *table, int64_t half, double sign, bool is_interleaved)
{
    for (int64_t i = 0; i < half; i++) {
        const double cosine = table[2 * i];
        const double sine = sign * table[2 * i + 1];
        REAL *first = x + (is_interleaved ? 2 * i : i);
        REAL *second = x + (is_interleaved ? 2 * i + 1 : i + half);
        const double a = (double)*first;
        const double b = (double)*second;
        *first = (REAL)(a * cosine - b * sine);
        *second = (REAL)(b * cosine + a * sine);
    }
}

/* q and k heads turned in place by the angles of their position, first + n % s; elements from
 * 2 * half on and v stay. */
static void rope(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim; /* [N, g, r + 2, D] */
    const int64_t half = call->arg[1].dim[1];
    const int64_t first = first_position(&call->arg[2]);
    const double sign = call->attr[1] ? -1.0 : 1.0;
    for (int64_t n = 0; n < dim[0]; n++) {
        const double *table = (const double *)call->arg[1].data;
        const double *angles = table + (first + n % call->attr[0]) * half * 2;
        for (int64_t g = 0; g < dim[1]; g++) {
            REAL *group = out(call, 0) + (n * dim[1] + g) * dim[2] * dim[3];
            for (int64_t h = 0; h + 1 < dim[2]; h++)
                rotate(group + h * dim[3], angles, half, sign, call->attr[2] != 0);
        }
    }
}
