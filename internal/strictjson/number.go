// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package strictjson

func (s *scanner) number(i int) (int, failure) {
	start := i
	if s.data[i] == '-' {
		i++
	}
	first, whole := i, s.digits(i)
	switch {
	case whole == i:
		return i, failure{at: i, reason: "number without digits"}
	case s.data[i] == '0' && whole > i+1:
		return i, failure{at: i, reason: "number with a leading zero"}
	}
	count := whole - i
	i = whole
	if i < len(s.data) && s.data[i] == '.' {
		end := s.digits(i + 1)
		if end == i+1 {
			return i, failure{at: i, reason: "number without digits after its point"}
		}
		count += end - i - 1
		i = end
	}
	if count > MaxDigits {
		return start, failure{at: start, reason: "number over 400 digits"}
	}
	if i < len(s.data) && (s.data[i] == 'e' || s.data[i] == 'E') {
		return s.exponent(start, i, magnitude(s.data[first:i], whole-first))
	}
	return i, failure{}
}

// magnitude is the exponent of digits, so many of which stand before the point, when the point is put behind the first
// that is not zero.
func magnitude(digits []byte, whole int) int {
	if digits[0] != '0' {
		return whole - 1
	}
	for n, c := range digits[whole:] {
		if c >= '1' {
			return -n
		}
	}
	return 0
}

// exponent reads an exponent at the e before it. The canonical form of the number, whose exponent is higher by magnitude,
// has to be acceptable too.
func (s *scanner) exponent(start, i, magnitude int) (int, failure) {
	sign := 1
	if i++; i < len(s.data) && (s.data[i] == '+' || s.data[i] == '-') {
		if s.data[i] == '-' {
			sign = -1
		}
		i++
	}
	end := s.digits(i)
	if end == i {
		return i, failure{at: i, reason: "exponent without digits"}
	}
	value := 0
	for _, c := range s.data[i:end] {
		if value = value*10 + int(c-'0'); value > MaxExponent {
			return start, failure{at: start, reason: "exponent beyond 400"}
		}
	}
	if value = sign*value + magnitude; value > MaxExponent || value < -MaxExponent {
		return start, failure{at: start, reason: "exponent beyond 400"}
	}
	return end, failure{}
}

func (s *scanner) digits(i int) int {
	for i < len(s.data) && isDigit(s.data[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
