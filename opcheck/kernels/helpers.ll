; Functions that kernels call (intrinsics.py): a kernel's module gets those that it calls, with theirs.

; Functions from outside of the module: of the C library, and of threads.cpp.
declare double @exp(double)
declare double @exp2(double)
declare double @log(double)
declare double @log2(double)
declare double @log10(double)
declare double @cbrt(double)
declare double @sin(double)
declare double @cos(double)
declare double @tan(double)
declare double @asin(double)
declare double @acos(double)
declare double @atan(double)
declare double @sinh(double)
declare double @cosh(double)
declare double @tanh(double)
declare double @asinh(double)
declare double @acosh(double)
declare double @atanh(double)
declare double @pow(double, double)
declare double @fmod(double, double)
declare double @atan2(double, double)
declare double @ldexp(double, i32)
declare void @opcheck_barrier()
declare void @opcheck_step()
declare void @opcheck_simdgroup_barrier()
declare ptr @opcheck_exchange(ptr, i32)
declare ptr @opcheck_folded(ptr)
declare i32 @opcheck_here()
declare i32 @opcheck_lane()
declare void @opcheck_matrix(ptr, ptr, ptr, ptr)

; Runs all threads of a grid that do not need each other.  The numbers are POSITIONS of lowering.py: 9 to
; 11 are the threadgroup's extent and 15 to 17 the grid's.
define void @opcheck.grid(ptr %buffers, ptr %numbers) {
entry:
  %py = getelementptr i32, ptr %numbers, i32 1
  %pz = getelementptr i32, ptr %numbers, i32 2
  %lx = getelementptr i32, ptr %numbers, i32 3
  %ly = getelementptr i32, ptr %numbers, i32 4
  %lz = getelementptr i32, ptr %numbers, i32 5
  %gx = getelementptr i32, ptr %numbers, i32 6
  %gy = getelementptr i32, ptr %numbers, i32 7
  %gz = getelementptr i32, ptr %numbers, i32 8
  %psx = getelementptr i32, ptr %numbers, i32 9
  %psy = getelementptr i32, ptr %numbers, i32 10
  %psz = getelementptr i32, ptr %numbers, i32 11
  %pnx = getelementptr i32, ptr %numbers, i32 15
  %pny = getelementptr i32, ptr %numbers, i32 16
  %pnz = getelementptr i32, ptr %numbers, i32 17
  %pindex = getelementptr i32, ptr %numbers, i32 18
  %plane = getelementptr i32, ptr %numbers, i32 19
  %psimd = getelementptr i32, ptr %numbers, i32 20
  %sx = load i32, ptr %psx
  %sy = load i32, ptr %psy
  %sz = load i32, ptr %psz
  %nx = load i32, ptr %pnx
  %ny = load i32, ptr %pny
  %nz = load i32, ptr %pnz
  br label %zs
zs:
  %z = phi i32 [ 0, %entry ], [ %z1, %ze ]
  store i32 %z, ptr %pz
  %dz = udiv i32 %z, %sz
  %mz = urem i32 %z, %sz
  store i32 %dz, ptr %gz
  store i32 %mz, ptr %lz
  br label %ys
ys:
  %y = phi i32 [ 0, %zs ], [ %y1, %ye ]
  store i32 %y, ptr %py
  %dy = udiv i32 %y, %sy
  %my = urem i32 %y, %sy
  store i32 %dy, ptr %gy
  store i32 %my, ptr %ly
  br label %xs
xs:
  %x = phi i32 [ 0, %ys ], [ %x1, %xs ]
  store i32 %x, ptr %numbers
  %dx = udiv i32 %x, %sx
  %mx = urem i32 %x, %sx
  store i32 %dx, ptr %gx
  store i32 %mx, ptr %lx
  %i0 = mul i32 %mz, %sy
  %i1 = add i32 %i0, %my
  %i2 = mul i32 %i1, %sx
  %i3 = add i32 %i2, %mx
  store i32 %i3, ptr %pindex
  %i4 = and i32 %i3, 31
  store i32 %i4, ptr %plane
  %i5 = lshr i32 %i3, 5
  store i32 %i5, ptr %psimd
  call void @opcheck.body(ptr %buffers, ptr %numbers)
  %x1 = add i32 %x, 1
  %xd = icmp uge i32 %x1, %nx
  br i1 %xd, label %ye, label %xs
ye:
  %y1 = add i32 %y, 1
  %yd = icmp uge i32 %y1, %ny
  br i1 %yd, label %ze, label %ys
ze:
  %z1 = add i32 %z, 1
  %zd = icmp uge i32 %z1, %nz
  br i1 %zd, label %done, label %zs
done:
  ret void
}

; A product and a sum of halves, or of bfloats: as doubles the product is exact.
define internal double @opcheck.fma(double %a, double %b, double %c) nounwind {
  %m = fmul double %a, %b
  %r = fadd double %m, %c
  ret double %r
}

; A bfloat without denormals where the processor flushes them: there they are equal to zero.
define internal bfloat @opcheck.flushed(bfloat %x) nounwind {
  %zero = fcmp oeq bfloat %x, 0.0
  %bits = bitcast bfloat %x to i16
  %sign = and i16 %bits, -32768
  %kept = select i1 %zero, i16 %sign, i16 %bits
  %r = bitcast i16 %kept to bfloat
  ret bfloat %r
}

; A double as a float, rounded to odd: what is rounded again from there is rounded right.
define internal float @opcheck.odd(double %x) nounwind {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %same = fcmp ueq double %back, %x
  %bits = bitcast float %f to i32
  %fa = call double @llvm.fabs.f64(double %x)
  %ba = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %ba, %fa
  %less = sub i32 %bits, 1
  %down = select i1 %over, i32 %less, i32 %bits
  %sticky = or i32 %down, 1
  %r = select i1 %same, i32 %bits, i32 %sticky
  %v = bitcast i32 %r to float
  ret float %v
}

; Mathematical functions of AIR in double.
define internal double @opcheck.exp10(double %a) nounwind {
  %r = call double @pow(double 10.0, double %a)
  ret double %r
}

define internal double @opcheck.rsqrt(double %a) nounwind {
  %s = call double @llvm.sqrt.f64(double %a)
  %r = fdiv double 1.0, %s
  ret double %r
}

define internal double @opcheck.fract(double %a) nounwind {
  %fl = call double @llvm.floor.f64(double %a)
  %fr = fsub double %a, %fl
  %r = call double @llvm.minnum.f64(double %fr, double 0x3FEFFFFFE0000000)
  ret double %r
}

define internal double @opcheck.clamp(double %a, double %least, double %most) nounwind {
  %lo = call double @llvm.maxnum.f64(double %a, double %least)
  %r = call double @llvm.minnum.f64(double %lo, double %most)
  ret double %r
}

define internal double @opcheck.sincos(double %a, ptr %cosine) nounwind {
  %co = call double @cos(double %a)
  %cf = fptrunc double %co to float
  store float %cf, ptr %cosine
  %r = call double @sin(double %a)
  ret double %r
}

; (exp(2x) - 1) / (exp(2x) + 1), whose exp overflows: what Metal's fast::tanh is seen to do.
define internal double @opcheck.fast_tanh(double %a) nounwind {
  %t = fmul double %a, 2.0
  %e = call double @exp(double %t)
  %f = fptrunc double %e to float
  %m = fsub float %f, 1.0
  %p = fadd float %f, 1.0
  %q = fdiv float %m, %p
  %r = fpext float %q to double
  ret double %r
}

define internal double @opcheck.sinpi(double %a) nounwind {
  %r = call double @opcheck.quarters(double %a, i32 0)
  ret double %r
}

define internal double @opcheck.cospi(double %a) nounwind {
  %r = call double @opcheck.quarters(double %a, i32 1)
  ret double %r
}

; The sine of %a times pi, after so many more quarters of a turn.
define internal double @opcheck.quarters(double %a, i32 %more) nounwind {
  %twice = fmul double %a, 2.0
  %near = call double @llvm.rint.f64(double %twice)
  %half = fmul double %near, 0.5
  %rest = fsub double %a, %half
  %angle = fmul double %rest, 0x400921FB54442D18
  %sine = call double @sin(double %angle)
  %cosine = call double @cos(double %angle)
  %turn = call double @fmod(double %near, double 4.0)
  %whole = call i32 @llvm.fptosi.sat.i32.f64(double %turn)
  %sum = add i32 %whole, %more
  %q = and i32 %sum, 3
  %odd = trunc i32 %q to i1
  %v = select i1 %odd, double %cosine, double %sine
  %neg = icmp uge i32 %q, 2
  %minus = fneg double %v
  %r = select i1 %neg, double %minus, double %v
  ret double %r
}

; A lane has two elements of an 8x8 matrix: of this row, this column and the next (the convention of public
; Metal code; MLX, mlx/backend/metal/kernels/steel/gemm/mma.h, has the same).
define internal i32 @opcheck.row() nounwind {
  %lane = call i32 @opcheck_lane()
  %r0 = lshr i32 %lane, 1
  %r1 = and i32 %r0, 3
  %r2 = lshr i32 %lane, 2
  %r3 = and i32 %r2, 4
  %r = or i32 %r1, %r3
  ret i32 %r
}

define internal i32 @opcheck.column() nounwind {
  %lane = call i32 @opcheck_lane()
  %c0 = and i32 %lane, 1
  %c1 = shl i32 %c0, 1
  %c2 = lshr i32 %lane, 1
  %c3 = and i32 %c2, 4
  %r = or i32 %c1, %c3
  ret i32 %r
}

; The place of an element of a matrix that begins at an origin (column, row) of a larger one.
define internal i64 @opcheck.element(i32 %row, i32 %column, <2 x i64> %origin, i64 %rows, i64 %columns, i1 %swapped) nounwind {
  %ox = extractelement <2 x i64> %origin, i32 0
  %oy = extractelement <2 x i64> %origin, i32 1
  %rw = zext i32 %row to i64
  %cw = zext i32 %column to i64
  %a = select i1 %swapped, i64 %cw, i64 %rw
  %b = select i1 %swapped, i64 %rw, i64 %cw
  %y = add i64 %a, %oy
  %z = add i64 %b, %ox
  %m = mul i64 %y, %rows
  %k = mul i64 %z, %columns
  %r = add i64 %m, %k
  ret i64 %r
}
