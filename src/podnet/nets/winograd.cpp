// 3 x 3 convolutions of stride 1, padded by 1, by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin & Gray, 2016).
//
// A tile of 2 x 2 outputs needs 4 x 4 inputs. Tiles and filters are transformed and multiplied point by point: 16
// products a tile instead of 36. Over all channels each point is a product of matrices, which is where the time goes.
//
//   outputs    Y = A'[(G g G') * (B'd B)] A      B'd: d0 - d2, d1 + d2, d2 - d1, d1 - d3
//   gradients dg = G'[(A dY A') * (B'd B)] G     G g: g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2
//                                                A'm: m0 + m1 + m2, m1 - m2 - m3
//
// Maps lie in memory as (image, height, width, channel), filters as (output, 3, 3, input), as many outputs as inputs;
// height and width are even. A block of tiles is transformed, multiplied and transformed back while it is in the cache.
//
// Python calls the two functions at the end of the file (kernels.py). No exception may leave them or a parallel region,
// because that ends the process: memory is allocated without exceptions, and failures are returned as a Status.

#include <omp.h>

#include <algorithm>
#include <memory>
#include <new>

#ifndef REAL
#define REAL float
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 12")

typedef REAL real;
#ifdef __AVX512F__
constexpr int BYTES = 64, REGISTERS = 32;  // how long a register is, and how many there are
#else
constexpr int BYTES = 32, REGISTERS = 16;
#endif
constexpr int LANES = BYTES / sizeof(real);
typedef real Lanes __attribute__((vector_size(BYTES)));
typedef real LanesAnywhere __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));

constexpr int POINTS = 16;                // of a transformed tile
constexpr int ROWS = 3 * REGISTERS / 8;   // of the sums of a product that registers hold, 3 of 4 with two a row
constexpr long BLOCK = 1536;              // tiles times channels, about
constexpr int registers_a_row(int channels) { return channels < 2 * LANES ? 1 : 2; }

enum Status { DONE = 0, NO_MEMORY = 1, UNSUPPORTED = 2 };  // as in kernels.py

typedef std::unique_ptr<real[]> Memory;
static Memory zeroed(long count) { return Memory(new (std::nothrow) real[count]()); }  // null without memory

INLINE Lanes load(const real* from) { return *(const LanesAnywhere*)from; }
INLINE void store(real* to, Lanes values) { *(LanesAnywhere*)to = values; }

struct Tiling {
  long height, width;
  long across;  // tiles in a row
  long rows;    // of tiles, in all images
  long block;   // rows that are worked on at a time
  long step;    // from the values of a point to those of the next; a little more than they need, lest all of them fall
                // into one part of the cache

  Tiling(long images, long height, long width, long channels)
      : height(height), width(width), across(width / 2), rows(images * height / 2) {
    block = std::max(1L, BLOCK / channels / across);
    step = (block * across + ROWS - 1) / ROWS * ROWS * channels + 16;
  }
  long end(long first) const { return std::min(first + block, rows); }
};

// What a thread works in
struct Scratch {
  const Memory inputs, outputs, zeros;

  Scratch(const Tiling& t, long channels)
      : inputs(zeroed(POINTS * t.step)), outputs(zeroed(POINTS * t.step)), zeros(zeroed(t.width * channels)) {}
  bool complete() const { return inputs && outputs && zeros; }
};

// B'd B of a row of tiles
template <int C>
INLINE void inputs_to_points(const Tiling& t, long row, const real* maps, const real* zeros, real* points) {
  const long line = t.width * C, y = 2 * row % t.height;
  const real* at = maps + 2 * row * line;
  const real* lines[4] = {y > 0 ? at - line : zeros, at, at + line, y + 2 < t.height ? at + 2 * line : zeros};
  for (int c = 0; c < C; c += LANES) {
    const auto column = [&](long x, Lanes out[4]) {
      Lanes d[4];
      UNROLL for (int i = 0; i < 4; i++) d[i] = load(lines[i] + x * C + c);
      out[0] = d[0] - d[2], out[1] = d[1] + d[2], out[2] = d[2] - d[1], out[3] = d[1] - d[3];
    };
    Lanes d[4][4] = {};  // by columns; the first is beside the map
    column(0, d[1]);
    real* to = points + c;
    for (long x = 0; x < t.width; x += 2, to += C) {
      column(x + 1, d[2]);
      if (x + 2 < t.width)
        column(x + 2, d[3]);
      else
        UNROLL for (int i = 0; i < 4; i++) d[3][i] = Lanes{};
      UNROLL for (int i = 0; i < 4; i++) {
        store(to + (4 * i) * t.step, d[0][i] - d[2][i]);
        store(to + (4 * i + 1) * t.step, d[1][i] + d[2][i]);
        store(to + (4 * i + 2) * t.step, d[2][i] - d[1][i]);
        store(to + (4 * i + 3) * t.step, d[1][i] - d[3][i]);
        d[0][i] = d[2][i], d[1][i] = d[3][i];  // of the next tile
      }
    }
  }
}

// A'm A of a row of tiles, and what is asked for on their way to memory
template <int C>
INLINE void points_to_outputs(const Tiling& t, long row, const real* points, const real* bias, const real* plus,
                              bool relu, real* maps) {
  const long line = t.width * C;
  for (int c = 0; c < C; c += LANES) {
    const real* from = points + c;
    for (long at = 2 * row * line + c; at < (2 * row + 1) * line; at += 2 * C, from += C) {
      Lanes m[2][4];
      UNROLL for (int j = 0; j < 4; j++) {
        Lanes a[4];
        UNROLL for (int i = 0; i < 4; i++) a[i] = load(from + (4 * i + j) * t.step);
        m[0][j] = a[0] + a[1] + a[2], m[1][j] = a[1] - a[2] - a[3];
      }
      UNROLL for (int i = 0; i < 2; i++) {
        Lanes y[2] = {m[i][0] + m[i][1] + m[i][2], m[i][1] - m[i][2] - m[i][3]};
        UNROLL for (int j = 0; j < 2; j++) {
          const long to = at + i * line + j * C;
          if (bias) y[j] += load(bias + c);
          if (plus) y[j] += load(plus + to);
          if (relu) y[j] = y[j] < 0 ? Lanes{} : y[j];  // what is not a number stays so
          store(maps + to, y[j]);
        }
      }
    }
  }
}

// A dY A' of a row of tiles
template <int C>
INLINE void gradients_to_points(const Tiling& t, long row, const real* gradients, real* points) {
  const long line = t.width * C;
  for (int c = 0; c < C; c += LANES) {
    real* to = points + c;
    for (long at = 2 * row * line + c; at < (2 * row + 1) * line; at += 2 * C, to += C) {
      Lanes y[4][2];
      UNROLL for (int j = 0; j < 2; j++) {
        const Lanes upper = load(gradients + at + j * C),
                    lower = load(gradients + at + line + j * C);
        y[0][j] = upper, y[1][j] = upper + lower, y[2][j] = upper - lower, y[3][j] = -lower;
      }
      UNROLL for (int i = 0; i < 4; i++) {
        store(to + (4 * i) * t.step, y[i][0]);
        store(to + (4 * i + 1) * t.step, y[i][0] + y[i][1]);
        store(to + (4 * i + 2) * t.step, y[i][0] - y[i][1]);
        store(to + (4 * i + 3) * t.step, -y[i][1]);
      }
    }
  }
}

INLINE void filter_to_points(const Lanes g[3], Lanes p[4]) {
  p[0] = g[0], p[1] = (g[0] + g[1] + g[2]) / 2, p[2] = (g[0] - g[1] + g[2]) / 2, p[3] = g[2];
}

INLINE void points_to_filter(const Lanes p[4], Lanes g[3]) {
  g[0] = p[0] + (p[1] + p[2]) / 2, g[1] = (p[1] - p[2]) / 2, g[2] = (p[1] + p[2]) / 2 + p[3];
}

// G g G' of each filter, as (point, input, output). With `backwards` the filters are those that lead from gradients of
// outputs to gradients of inputs: turned around, and inputs are outputs.
template <int C>
static void filters_to_points(const real* filters, bool backwards, real* points) {
  for (int o = 0; o < C; o++)
    for (int i = 0; i < C; i += LANES) {
      Lanes half[4][3];
      UNROLL for (int x = 0; x < 3; x++) {
        Lanes g[3], p[4];
        UNROLL for (int y = 0; y < 3; y++) {
          const int pixel = backwards ? 8 - 3 * y - x : 3 * y + x;
          g[y] = load(filters + (9 * o + pixel) * C + i);
        }
        filter_to_points(g, p);
        UNROLL for (int y = 0; y < 4; y++) half[y][x] = p[y];
      }
      UNROLL for (int y = 0; y < 4; y++) {
        Lanes p[4];
        filter_to_points(half[y], p);
        for (int x = 0; x < 4; x++) {
          real* to = points + (4 * y + x) * C * C;
          if (backwards)
            store(to + o * C + i, p[x]);
          else
            UNROLL for (int k = 0; k < LANES; k++) to[(i + k) * C + o] = p[x][k];
        }
      }
    }
}

// G'p G, the other way
template <int C>
static void points_to_filters(const real* points, real* filters) {
  for (int i = 0; i < C; i++)
    for (int o = 0; o < C; o += LANES) {
      Lanes half[3][4];
      UNROLL for (int x = 0; x < 4; x++) {
        Lanes p[4], g[3];
        UNROLL for (int y = 0; y < 4; y++) p[y] = load(points + (4 * y + x) * C * C + i * C + o);
        points_to_filter(p, g);
        UNROLL for (int y = 0; y < 3; y++) half[y][x] = g[y];
      }
      UNROLL for (int y = 0; y < 3; y++) {
        Lanes g[3];
        points_to_filter(half[y], g);
        for (int x = 0; x < 3; x++)
          UNROLL for (int k = 0; k < LANES; k++) filters[(9 * (o + k) + 3 * y + x) * C + i] = g[x][k];
      }
    }
}

// R rows of out (=, or += if ADD) a product: `left` (rows, depth) by its two steps, times `right` (depth, C)
template <int R, int C, bool ADD>
INLINE void multiply(const real* left, long by_row, long by_depth, const real* right, long depth, real* out) {
  constexpr int WIDE = registers_a_row(C);
  Lanes sum[R][WIDE];
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = ADD ? load(out + i * C + j * LANES) : Lanes{};
  for (long k = 0; k < depth; k++) {
    Lanes factor[WIDE];
    UNROLL for (int j = 0; j < WIDE; j++) factor[j] = load(right + k * C + j * LANES);
    UNROLL for (int i = 0; i < R; i++) {
      const Lanes each = left[i * by_row + k * by_depth] - Lanes{};
      UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] += each * factor[j];
    }
  }
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < WIDE; j++) store(out + i * C + j * LANES, sum[i][j]);
}

template <int C>
static Status convolve(const Tiling& t, const real* maps, const real* filters, bool backwards, const real* bias,
                       const real* plus, bool relu, int threads, real* out) {
  const Memory factors = zeroed(POINTS * C * C);
  if (!factors) return NO_MEMORY;
  filters_to_points<C>(filters, backwards, factors.get());
  bool enough = true;
#pragma omp parallel num_threads(threads) reduction(&& : enough)
  {
    const Scratch own(t, C);
    real *inputs = own.inputs.get(), *outputs = own.outputs.get();
    enough = own.complete();
#pragma omp for schedule(static)
    for (long first = 0; first < t.rows; first += t.block) {
      if (!enough) continue;
      const long end = t.end(first), row = t.across * C;
      for (long r = first; r < end; r++)
        inputs_to_points<C>(t, r, maps, own.zeros.get(), inputs + (r - first) * row);
      for (int p = 0; p < POINTS; p++)
        for (int c = 0; c < C; c += registers_a_row(C) * LANES) {
          const real *left = inputs + p * t.step, *right = &factors[p * C * C + c];
          real* to = outputs + p * t.step + c;
          for (long i = 0; i < (end - first) * row; i += ROWS * C)
            multiply<ROWS, C, false>(left + i, C, 1, right, C, to + i);
        }
      for (long r = first; r < end; r++)
        points_to_outputs<C>(t, r, outputs + (r - first) * row, bias, plus, relu, out);
    }
  }
  return enough ? DONE : NO_MEMORY;
}

template <int C>
static Status weight_gradient(const Tiling& t, const real* maps, const real* gradients, int threads, real* filters) {
  const Memory sums = zeroed((long)threads * POINTS * C * C);
  if (!sums) return NO_MEMORY;
  bool enough = true;
#pragma omp parallel num_threads(threads) reduction(&& : enough)
  {
    const Scratch own(t, C);
    real *inputs = own.inputs.get(), *outputs = own.outputs.get();
    enough = own.complete();
    real* sum = &sums[(long)omp_get_thread_num() * POINTS * C * C];
#pragma omp for schedule(static)
    for (long first = 0; first < t.rows; first += t.block) {
      if (!enough) continue;
      const long end = t.end(first), row = t.across * C, tiles = (end - first) * t.across;
      for (long r = first; r < end; r++) {
        inputs_to_points<C>(t, r, maps, own.zeros.get(), inputs + (r - first) * row);
        gradients_to_points<C>(t, r, gradients, outputs + (r - first) * row);
      }
      for (int p = 0; p < POINTS; p++)
        for (int c = 0; c < C; c += registers_a_row(C) * LANES) {
          const real *left = inputs + p * t.step, *right = outputs + p * t.step + c;
          real* to = sum + p * C * C + c;
          for (int i = 0; i + ROWS <= C; i += ROWS) multiply<ROWS, C, true>(left + i, 1, C, right, tiles, to + i * C);
          constexpr int rest = C % ROWS, last = C - rest;
          multiply<rest, C, true>(left + last, 1, C, right, tiles, to + last * C);
        }
    }
  }
  if (!enough) return NO_MEMORY;
  for (long k = 1; k < threads; k++)
    for (int i = 0; i < POINTS * C * C; i++) sums[i] += sums[k * POINTS * C * C + i];
  points_to_filters<C>(sums.get(), filters);
  return DONE;
}

#define FOR_CHANNELS(call)                                                                                       \
  if (images < 0 || height < 2 || width < 2 || height % 2 || width % 2 || threads < 1) return UNSUPPORTED;       \
  if (channels != 16 && channels != 32 && channels != 64) return UNSUPPORTED;                                    \
  const Tiling t(images, height, width, channels);                                                               \
  if (channels == 16) {                                                                                          \
    constexpr int C = 16;                                                                                        \
    return call;                                                                                                 \
  } else if (channels == 32) {                                                                                   \
    constexpr int C = 32;                                                                                        \
    return call;                                                                                                 \
  } else {                                                                                                       \
    constexpr int C = 64;                                                                                        \
    return call;                                                                                                 \
  }

extern "C" int podnet_convolve(long images, long height, long width, long channels, const real* maps,
                               const real* filters, int backwards, const real* bias, const real* plus, int relu,
                               int threads, real* out) {
  FOR_CHANNELS(convolve<C>(t, maps, filters, backwards, bias, plus, relu, threads, out))
}

extern "C" int podnet_weight_gradient(long images, long height, long width, long channels, const real* maps,
                                      const real* gradients, int threads, real* filters) {
  FOR_CHANNELS(weight_gradient<C>(t, maps, gradients, threads, filters))
}
