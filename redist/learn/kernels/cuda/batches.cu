/* A step of k-means on a batch of rows whose labels are known: scikit-learn's, with its bits.

   `told` has k centres of d numbers, then how many rows each had so far; `found` gets the same after the batch, then how
   far each row of the batch was from its centre, squared. A thread looks after one number of one centre, and adds the
   centre's rows in their order in the batch. Squares are added four at a time. */
extern "C" __global__ void move_centers(const REAL *rows, i64 n, i64 d, const int *labels, i64 k,
                                        const REAL *told, REAL *found)
{
    EACH_THREAD {
        for (i64 p = (i64)blockIdx.x * N_THREADS + tid; p < k * d + n;
             p += (i64)gridDim.x * N_THREADS) {
            if (p >= k * d) {
                const REAL *row = rows + (p - k * d) * d, *centre = told + labels[p - k * d] * d;
                REAL far = 0, apart[4];
                i64 j = 0;
                for (; j + 4 <= d; j += 4) {
                    for (int c = 0; c < 4; c++)
                        apart[c] = row[j + c] - centre[j + c];
                    far += apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2] +
                           apart[3] * apart[3];
                }
                for (; j < d; j++)
                    far += (row[j] - centre[j]) * (row[j] - centre[j]);
                found[k + p] = far;
                continue;
            }
            const i64 c = p / d, j = p % d;
            REAL sum = told[p] * told[k * d + c], count = 0;
            for (i64 i = 0; i < n; i++)
                if (labels[i] == c) {
                    sum += rows[i * d + j];
                    count += 1;
                }
            const REAL all = told[k * d + c] + count;
            found[p] = count > 0 ? sum * ((REAL)1 / all) : told[p];
            if (j == 0)
                found[k * d + c] = all;
        }
    }
}
