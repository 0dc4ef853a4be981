/* What all loops of clustering on a GPU share.

   A loop is written in phases: between two barriers every thread of a block does EACH_THREAD. Arguments have eight
   bytes each. So the same text runs as plain C++, thread after thread, where there is no GPU. Products are rounded
   before they are added; where they are fused, the code says so. */
typedef long long i64;

#ifndef ON_HOST
#define EACH_THREAD for (int tid = (int)threadIdx.x, once = 1; once; once = 0)
#define N_THREADS ((int)blockDim.x)
extern __shared__ __align__(16) unsigned char ROOM[];
static __device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ __forceinline__ double fused(double a, double b, double c)
{
    return fma(a, b, c);
}
#endif

/* The part of a value that lies on the grid of a constant 1.5 * 2^52 units: parts add without rounding. */
static __device__ __forceinline__ double on_grid(double value, double grid)
{
    return (value + grid) - grid;
}
