package main

import "testing"

// What differs is to be seen, however much stands before it.
func TestApart(t *testing.T) {
	for _, tt := range []struct{ left, right, wantLeft, wantRight string }{
		{"short", "short too", "short", "short too"},
		{"0123456789abcdefghij X", "0123456789abcdefghij YY", "…defghij X", "…defghij YY"},
		{"äöüäöüäöüäöüäöüäöüäöü1", "äöüäöüäöüäöüäöüäöüäöü2", "…öüäöüäöü1", "…öüäöüäöü2"},
		{"0123456 and so on and on", "0123456 but not so on", "0123456 and so on and on", "0123456 but not so on"},
		{"0123456789abcdefghij", "0123456789abcdefghij and more", "…cdefghij", "…cdefghij and more"},
		{"", "a text that is alone, and long", "", "a text that is alone, and long"},
	} {
		if left, right := apart(tt.left, tt.right, 20); left != tt.wantLeft || right != tt.wantRight {
			t.Errorf("%q and %q are %q and %q", tt.left, tt.right, left, right)
		}
	}
}
