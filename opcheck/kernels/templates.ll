; Pieces of assembly whose words `$...` are filled in (ir_templates.py); `;; NAME` begins each.
; T is the type of the operands and the result, K that of an element, unless a piece says otherwise.

; -- intrinsics.py: bodies of AIR's functions --

;; nextafter
  %nan = fcmp uno $T %0, %1
  %same = fcmp oeq $T %0, %1
  %sum = fadd $T %0, %1
  %b = bitcast $T %0 to $bits
  %to = bitcast $T %1 to $bits
  %zero = fcmp oeq $T %0, 0.0
  %sign = and $bits %to, $lowest
  %tiny = or $bits %sign, 1
  %less = fcmp olt $T %0, %1
  %minus = icmp slt $bits %b, 0
  %grow = xor i1 %less, %minus
  %more = add $bits %b, 1
  %fewer = sub $bits %b, 1
  %step = select i1 %grow, $bits %more, $bits %fewer
  %next = select i1 %zero, $bits %tiny, $bits %step
  %value = bitcast $bits %next to $T
  %equal = select i1 %same, $T %1, $T %value
  %r = select i1 %nan, $T %sum, $T %equal
  ret $T %r

; Of integers, whose sign S is s or u; W is the type twice as wide.
;; integer.min
  %r = call $T @llvm.${S}min.$T($T %0, $T %1)
  ret $T %r
;; integer.max
  %r = call $T @llvm.${S}max.$T($T %0, $T %1)
  ret $T %r
;; integer.clz
  %r = call $T @llvm.ctlz.$T($T %0, i1 false)
  ret $T %r
;; integer.ctz
  %r = call $T @llvm.cttz.$T($T %0, i1 false)
  ret $T %r
;; integer.popcount
  %r = call $T @llvm.ctpop.$T($T %0)
  ret $T %r
;; integer.reverse_bits
  %r = call $T @llvm.bitreverse.$T($T %0)
  ret $T %r
;; integer.clamp
  %a = call $T @llvm.${S}max.$T($T %0, $T %1)
  %r = call $T @llvm.${S}min.$T($T %a, $T %2)
  ret $T %r
;; integer.add_sat
  %r = call $T @llvm.${S}add.sat.$T($T %0, $T %1)
  ret $T %r
;; integer.sub_sat
  %r = call $T @llvm.${S}sub.sat.$T($T %0, $T %1)
  ret $T %r
;; integer.rotate
  %r = call $T @llvm.fshl.$T($T %0, $T %0, $T %1)
  ret $T %r
;; integer.abs
  %r = call $T @llvm.abs.$T($T %0, i1 false)
  ret $T %r
;; integer.mul_hi
  %a = $extend $T %0 to $W
  %b = $extend $T %1 to $W
  %c = mul $W %a, %b
  %d = lshr $W %c, $bits
  %r = trunc $W %d to $T
  ret $T %r

; Atomics are plain loads and stores: one thread of the system runs all threads of the kernel.
;; atomic.load
  %r = load $T, ptr %0
  ret $T %r
;; atomic.store
  store $T %1, ptr %0
  ret void
;; atomic.cmpxchg
  %old = load $bits, ptr %0
  %expected = load $bits, ptr %1
  %new = bitcast $T %2 to $bits
  %same = icmp eq $bits %old, %expected
  %kept = select i1 %same, $bits %new, $bits %old
  store $bits %kept, ptr %0
  store $bits %old, ptr %1
  %r = bitcast $bits %old to $T
  ret $T %r
;; atomic.change
  %old = load $T, ptr %0
  %new = $change
  store $T %new, ptr %0
  ret $returned

; What the lanes of a simdgroup do together: a value is left; then %here has the active lanes' bits, %lane
; the own number, %all the values.
;; exchange
  %slot = alloca $T, align 16
  store $T $value, ptr %slot
  %all = call ptr @opcheck_exchange(ptr %slot, i32 $size) convergent nomerge
  %here = call i32 @opcheck_here() convergent nomerge
  %lane = call i32 @opcheck_lane() convergent nomerge
;; take
  %$name.at = mul i32 $index, $size
  %$name.ptr = getelementptr i8, ptr %all, i32 %$name.at
  %$name = load $T, ptr %$name.ptr, align 1
;; is_first
  %first = call i32 @llvm.cttz.i32(i32 %here, i1 false)
  %r = icmp eq i32 %first, %lane
  ret i1 %r

; The values of the active lanes, in their order, become %r: all of them, or of prefixes those before a lane.
; A function computes what each lane reads, once for all; its definition follows, up to its last line.
;; fold
$exchange
  %kept = call ptr @opcheck_folded(ptr $function) convergent nomerge
  %at = mul i32 %lane, $step
  %mine = getelementptr i8, ptr %kept, i32 %at
  %r = load $T, ptr %mine, align 1
$ending
}
define internal void $function(ptr %all, i32 %here, ptr %kept) nounwind {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %total = phi $T [ $identity, %entry ], [ %f, %loop ]
$taken
$combined
  %shifted = lshr i32 %here, %i
  %on = trunc i32 %shifted to i1
  %f = select i1 %on, $T %new, $T %total
$each
  %next = add i32 %i, 1
  %end = icmp eq i32 %next, 32
  br i1 %end, label %done, label %loop
done:
$last
  ret void
;; fold.prefix
  %put.at = mul i32 %i, $step
  %put = getelementptr i8, ptr %kept, i32 %put.at
  store $T $prefix, ptr %put, align 1
;; fold.bfloat
  %ft = fpext bfloat %total to float
  %fx = fpext bfloat %x to float
  %fn = call float @llvm.$function.f32(float %ft, float %fx)
  %new = fptrunc float %fn to bfloat

; The number of the lane that another lane reads from.
;; lane.broadcast_first
  %to = call i32 @llvm.cttz.i32(i32 %here, i1 false)
;; lane.broadcast
  %amount = zext i16 %1 to i32
  %to = add i32 %amount, 0
;; lane.shuffle
  %amount = zext i16 %1 to i32
  %to = add i32 %amount, 0
;; lane.shuffle_xor
  %amount = zext i16 %1 to i32
  %to = xor i32 %lane, %amount
;; lane.shuffle_down
  %amount = zext i16 %1 to i32
  %to = add i32 %lane, %amount
;; lane.shuffle_up
  %amount = zext i16 %1 to i32
  %to = sub i32 %lane, %amount
;; lane.shuffle_rotate_down
  %amount = zext i16 %1 to i32
  %to = add i32 %lane, %amount
;; lane.shuffle_rotate_up
  %amount = zext i16 %1 to i32
  %to = sub i32 %lane, %amount
; Within a segment of %modulo lanes: %out where the other lane lies outside.
;; lane.shuffle_and_fill_down
  %amount = zext i16 %2 to i32
  %modulo = zext i16 %3 to i32
  %place = urem i32 %lane, %modulo
  %base = sub i32 %lane, %place
  %moved = add i32 %place, %amount
  %out = icmp uge i32 %moved, %modulo
  %wrapped = sub i32 %moved, %modulo
  %within = select i1 %out, i32 %wrapped, i32 %moved
  %to = add i32 %base, %within
;; lane.shuffle_and_fill_up
  %amount = zext i16 %2 to i32
  %modulo = zext i16 %3 to i32
  %place = urem i32 %lane, %modulo
  %base = sub i32 %lane, %place
  %moved = sub i32 %place, %amount
  %out = icmp slt i32 %moved, 0
  %wrapped = add i32 %moved, %modulo
  %within = select i1 %out, i32 %wrapped, i32 %moved
  %to = add i32 %base, %within
;; shuffled
$exchange
$index
  %in = and i32 %to, 31
$taken
  ret $T %value
;; filled
  %p = insertvalue [2 x $T] poison, $T %0, 0
  %q = insertvalue [2 x $T] %p, $T %1, 1
$exchange
$index
  %in = and i32 %to, 31
  %at = mul i32 %in, $both
  %second = select i1 %out, i32 $size, i32 0
  %spot = add i32 %at, %second
  %ptr = getelementptr i8, ptr %all, i32 %spot
  %value = load $T, ptr %ptr, align 1
  ret $T %value

; Matrices of 8x8: a lane has two elements, whose row and columns these are.
;; matrix.place
  %row = call i32 @opcheck.row()
  %column = call i32 @opcheck.column()
  %second = add i32 %column, 1
;; matrix.two
  %v0 = insertelement $T zeroinitializer, $K $first, i32 0
  %v1 = insertelement $T %v0, $K $second, i32 1
  ret $T %v1
;; matrix.diagonal
  %d0 = icmp eq i32 %row, %column
  %d1 = icmp eq i32 %row, %second
  %x0 = select i1 %d0, $K %0, $K $zero
  %x1 = select i1 %d1, $K %0, $K $zero
;; matrix.strides
  %sx = extractelement <2 x i64> %$at, i32 0
  %sy = extractelement <2 x i64> %$at, i32 1
;; matrix.addresses
  %n0 = call i64 @opcheck.element(i32 %row, i32 %column, <2 x i64> $origin, i64 $rows, i64 $columns, i1 $swapped)
  %p0 = getelementptr $K, ptr %$at, i64 %n0
  %n1 = call i64 @opcheck.element(i32 %row, i32 %second, <2 x i64> $origin, i64 $rows, i64 $columns, i1 $swapped)
  %p1 = getelementptr $K, ptr %$at, i64 %n1
;; matrix.load
  %x0 = load $K, ptr %p0
  %x1 = load $K, ptr %p1
;; matrix.store
  %x0 = extractelement $T %0, i32 0
  store $K %x0, ptr %p0
  %x1 = extractelement $T %0, i32 1
  store $K %x1, ptr %p1
  ret void
;; matrix.operand
  %s$at = alloca [2 x float]
  %e$at.0 = extractelement $T %$at, i32 0
  %f$at.0 = $extend $K %e$at.0 to float
  %q$at.0 = getelementptr float, ptr %s$at, i32 0
  store float %f$at.0, ptr %q$at.0
  %e$at.1 = extractelement $T %$at, i32 1
  %f$at.1 = $extend $K %e$at.1 to float
  %q$at.1 = getelementptr float, ptr %s$at, i32 1
  store float %f$at.1, ptr %q$at.1
;; matrix.product
  %s9 = alloca [2 x float]
  call void @opcheck_matrix(ptr %s0, ptr %s1, ptr %s2, ptr %s9)
  %o0 = getelementptr float, ptr %s9, i32 0
  %l0 = load float, ptr %o0
  %t0 = $truncate float %l0 to $K
  %w0 = insertelement $T zeroinitializer, $K %t0, i32 0
  %o1 = getelementptr float, ptr %s9, i32 1
  %l1 = load float, ptr %o1
  %t1 = $truncate float %l1 to $K
  %w1 = insertelement $T %w0, $K %t1, i32 1
  ret $T %w1

; -- lowering.py --

;; fmuladd
define internal $T @opcheck.fmuladd.$suffix($T %a, $T %b, $T %c) nounwind {
  %flag = load i8, ptr @opcheck.separate, !invariant.load !0
  %two = icmp ne i8 %flag, 0
  br i1 %two, label %separate, label %fused
separate:
  %m = fmul $T %a, %b
  %s = fadd $T %m, %c
  ret $T %s
fused:
  %f = call $T @air.fma.$suffix($T %a, $T %b, $T %c)
  ret $T %f
}
; Gives 0 for a division by 0, and does not trap on the least number by -1.
;; division
define internal $T @opcheck.$name.$label($T %a, $T %b) nounwind {
  %zero = icmp eq $T %b, $none
  %minus = icmp eq $T %b, $negative
  %least = icmp eq $T %a, $lowest
  %both = and $flag %minus, %least
  %bad = or $flag %zero, $trapping
  %safe = select $flag %bad, $T $one, $T %b
  %q = $name $T %a, %safe
  %r = select $flag %zero, $T $none, $T %q
  ret $T %r
}
;; poison
  %end$at = getelementptr $T, ptr null, i32 1
  %size$at = ptrtoint ptr %end$at to i64
  call void @llvm.memset.p0.i64(ptr @$name, i8 -1, i64 %size$at, i1 false)

; -- bfloats.py: S, F, I and B are the types of a bfloat's bits, of a float, of its bits and of a choice --

; A float as a bfloat, to the nearest even; where denormals are flushed they are equal to zero.
;; bfloat.narrow
define internal $S @opcheck.narrow.$label($F %x) nounwind {
  %bits = bitcast $F %x to $I
  %nan = fcmp uno $F %x, $zero
  %high = lshr $I %bits, $i16
  %last = and $I %high, $i1
  %bias = add $I %last, $i32767
  %sum = add $I %bits, %bias
  %near = lshr $I %sum, $i16
  %quiet = or $I %high, $i64
  %chosen = select $B %nan, $I %quiet, $I %near
  %zero = fcmp oeq $F %x, $zero
  %sign = and $I %high, $i32768
  %flushed = select $B %zero, $I %sign, $I %chosen
  %r = trunc $I %flushed to $S
  ret $S %r
}
;; bfloat.wide
define internal $F @opcheck.wide.$label($S %x) nounwind {
  %z = zext $S %x to $I
  %s = shl $I %z, $i16
  %r = bitcast $I %s to $F
  ret $F %r
}
;; bfloat.binary
define internal $S @$name($S %a, $S %b) nounwind {
  %x = call $F @opcheck.wide.$label($S %a)
  %y = call $F @opcheck.wide.$label($S %b)
  %f = $op $F %x, %y
  %r = call $S @opcheck.narrow.$label($F %f)
  ret $S %r
}
; LLVM compares bits, with denormals that the processor takes for zero; a product it compares as a float.
;; bfloat.compare
define internal $B @$name($S %a, $S %b) nounwind {
  %x = call $F @opcheck.wide.$label($S %a)
  %y = call $F @opcheck.wide.$label($S %b)
  %one = load $F, ptr @opcheck.one.$label
  %x0 = fmul $F %x, %one
  %y0 = fmul $F %y, %one
  %r = fcmp $op $F %x0, %y0
  ret $B %r
}
;; bfloat.negate
define internal $S @$name($S %a) nounwind {
  %r = xor $S %a, $sign
  ret $S %r
}
;; bfloat.from
define internal $other @$name($S %a) nounwind {
  %x = call $F @opcheck.wide.$label($S %a)
  %r = $op $F %x to $other
  ret $other %r
}
;; bfloat.to
define internal $S @$name($other %a) nounwind {
  %f = $op $other %a to $F
  %r = call $S @opcheck.narrow.$label($F %f)
  ret $S %r
}

; -- optimizing.py: loops over the threads; n9 to n11 are the extents of a threadgroup --

;; rows
define internal void @opcheck.$label($parameters) noinline {
entry:
$fixed
  br label %zs
zs:
  %z = phi i32 [ %n2, %entry ], [ %z1, %ze ]
  br label %ys
ys:
  %y = phi i32 [ %n1, %zs ], [ %y1, %ye ]
  br label %xs
xs:
  %x = phi i32 [ %n0, %ys ], [ %x1, %xs ]
  %n3 = urem i32 %x, %n9
  %n4 = urem i32 %y, %n10
  %n5 = urem i32 %z, %n11
  %d6 = udiv i32 %x, %n9
  %d7 = udiv i32 %y, %n10
  %d8 = udiv i32 %z, %n11
  %i0 = mul i32 %n5, %n10
  %i1 = add i32 %i0, %n4
  %i2 = mul i32 %i1, %n9
  %n18 = add i32 %i2, %n3
  %n19 = and i32 %n18, 31
  %n20 = lshr i32 %n18, 5
$lines
  call void @$kernel($passed)
  %x1 = add nuw i32 %x, 1
  %xd = icmp uge i32 %x1, %n6
  br i1 %xd, label %ye, label %xs
ye:
  %y1 = add nuw i32 %y, 1
  %yd = icmp uge i32 %y1, %n7
  br i1 %yd, label %ze, label %ys
ze:
  %z1 = add nuw i32 %z, 1
  %zd = icmp uge i32 %z1, %n8
  br i1 %zd, label %done, label %zs
done:
  ret void
}
;; grid
define void @opcheck.grid(ptr %buffers, ptr %numbers) {
$loads
$body
  ret void
}
; Runs all threads but the last without their number of elements, which only the last has to look at.
;; split
  %end = getelementptr i32, ptr %numbers, i32 6
  %count = load i32, ptr %end
  %last = sub i32 %count, 1
  %few = icmp ult i32 %count, 2
  br i1 %few, label %rest, label %whole
whole:
  store i32 %last, ptr %end
  call void @opcheck.rows($passed)
  store i32 %last, ptr %numbers
  store i32 %count, ptr %end
  br label %rest
rest:
  call void @opcheck.rest($passed)
  store i32 0, ptr %numbers

; -- lane_loops.py --

; What each function gets: the frame, the lanes, what lanes exchange, and the lanes that did.
;; lanes.passed
ptr %opcheck.frame, i32 %opcheck.low, i32 %opcheck.high, ptr %opcheck.in, ptr %opcheck.out, i32 %opcheck.here
;; lanes.wrap
define void @opcheck.body($parameters) {
entry:
$lines
  call void @$kernel($passed)
  ret void
}
;; lanes.frame
%opcheck.kind = type { $fields }
@opcheck.size = constant i64 ptrtoint (ptr getelementptr (%opcheck.kind, ptr null, i32 1) to i64)
; The frame begins with what each lane does next, as threads.cpp reads it.  A function whose lanes all come back to
; its beginning begins again.
;; lanes.loop
define internal void @opcheck.lanes$number($parameters) noinline {
opcheck.entry:
$entry
  br label %opcheck.start
opcheck.start:
  br label %opcheck.loop
opcheck.loop:
  %opcheck.lane = phi i32 [ %opcheck.low, %opcheck.start ], [ %opcheck.after, %opcheck.latch ]
  %opcheck.others = phi i32 [ 0, %opcheck.start ], [ %opcheck.all, %opcheck.latch ]
  %opcheck.off = sub nuw i32 %opcheck.lane, %opcheck.low
  %opcheck.wide = zext i32 %opcheck.lane to i64
  %opcheck.next = getelementptr i32, ptr %opcheck.frame, i64 %opcheck.wide
$moving
$repeated
  br label %$start
$lines
opcheck.latch:
  %opcheck.code = phi i32 $ends
  store i32 %opcheck.code, ptr %opcheck.next
  %opcheck.other = xor i32 %opcheck.code, $own
  %opcheck.all = or i32 %opcheck.others, %opcheck.other
  %opcheck.after = add nuw nsw i32 %opcheck.lane, 1
  %opcheck.end = icmp eq i32 %opcheck.after, %opcheck.high
  br i1 %opcheck.end, label %opcheck.done, label %opcheck.loop
opcheck.done:
  %opcheck.back = icmp eq i32 %opcheck.all, 0
  br i1 %opcheck.back, label %opcheck.start, label %opcheck.return
opcheck.return:
  ret void
}
;; lanes.dispatch
define void @opcheck.body(ptr %buffers, ptr %numbers, i32 %state, $own) {
$loads
  switch i32 %state, label %end [$cases]
$calls
end:
  ret void
}
;; lanes.call
at$state:
  call void @opcheck.lanes$state($passed)
  br label %end
;; lanes.leave
  %opcheck.at.$label = mul nuw nsw i64 %opcheck.wide, $size
  %opcheck.out.$label = getelementptr i8, ptr %opcheck.out, i64 %opcheck.at.$label
  call void @llvm.memcpy.p0.p0.i64(ptr %opcheck.out.$label, ptr $value, i64 $size, i1 false)
