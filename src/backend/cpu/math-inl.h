// exp, GELU (exact erf form) and SiLU on vectors, compiled once per instruction set.
// exp: relative error below 2e-7, exactly 0 below -87.3. GELU: absolute error below 2e-7 max(1, |x|). Tested in
// kernels_test.cc.
#if defined(VOXRT_BACKEND_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOXRT_BACKEND_CPU_MATH_INL_H_
#undef VOXRT_BACKEND_CPU_MATH_INL_H_
#else
#define VOXRT_BACKEND_CPU_MATH_INL_H_
#endif

#include "backend/cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace voxrt::backend::cpu::HWY_NAMESPACE {

// 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; a degree-7 polynomial for e^r. NaN gives an unspecified finite
// value.
HWY_INLINE VF Exp(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const auto keep = hn::Ge(x, hn::Set(d, -87.3f));
  x = hn::Min(hn::Max(x, hn::Set(d, -87.3f)), hn::Set(d, 88.7f));
  const VF n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  // Added to the exponent of p (p is within [0.7, 1.42]), so n = 128 does not overflow on its own.
  const auto bits = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::ConvertTo(di, n)));
  return hn::IfThenElseZero(keep, hn::BitCast(d, bits));
}

// Odd rational approximation x P(x^2) / Q(x^2) on [-4, 4], beyond which erf rounds to 1.
HWY_INLINE VF Erf(VF x) {
  const DF d;
  x = hn::Min(hn::Max(x, hn::Set(d, -4.0f)), hn::Set(d, 4.0f));
  const VF y = hn::Mul(x, x);
  VF p = hn::Set(d, -2.72614225801306e-10f);
  p = hn::MulAdd(p, y, hn::Set(d, 2.77068142495902e-08f));
  p = hn::MulAdd(p, y, hn::Set(d, -2.10102402082508e-06f));
  p = hn::MulAdd(p, y, hn::Set(d, -5.69250639462346e-05f));
  p = hn::MulAdd(p, y, hn::Set(d, -7.34990630326855e-04f));
  p = hn::MulAdd(p, y, hn::Set(d, -2.95459980854025e-03f));
  p = hn::MulAdd(p, y, hn::Set(d, -1.60960333262415e-02f));
  VF q = hn::Set(d, -1.45660718464996e-05f);
  q = hn::MulAdd(q, y, hn::Set(d, -2.13374055278905e-04f));
  q = hn::MulAdd(q, y, hn::Set(d, -1.68282697438203e-03f));
  q = hn::MulAdd(q, y, hn::Set(d, -7.37332916720468e-03f));
  q = hn::MulAdd(q, y, hn::Set(d, -1.42647390514189e-02f));
  return hn::Div(hn::Mul(x, p), q);
}

HWY_INLINE VF Gelu(VF x) {
  const DF d;
  const VF e = Erf(hn::Mul(x, hn::Set(d, 0.70710678f)));
  const VF half = hn::Mul(x, hn::Set(d, 0.5f));
  return hn::MulAdd(half, e, half);
}

HWY_INLINE VF Silu(VF x) { return hn::Div(x, hn::Add(hn::Set(DF(), 1.0f), Exp(hn::Neg(x)))); }

}  // namespace voxrt::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // toggle
