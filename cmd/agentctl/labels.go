package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// labelsFlag is a flag that is given once for each label.
type labelsFlag struct {
	labels *map[string]string
	// any: a key alone stands for every value of it, which is empty here.
	any bool
}

func (f labelsFlag) Set(s string) error {
	key, value, whole := strings.Cut(s, "=")
	_, twice := (*f.labels)[key]
	switch {
	case key == "" || !whole && !f.any:
		return errors.New("want KEY=VALUE, such as team=search")
	case whole && value == "" && f.any:
		return fmt.Errorf("the value is missing; %s alone takes any", key)
	case twice:
		return fmt.Errorf("label %s is given twice", key)
	}
	if *f.labels == nil {
		*f.labels = map[string]string{}
	}
	(*f.labels)[key] = value
	return nil
}

// String is called on the zero value too.
func (f labelsFlag) String() string { return "" }

func (f labelsFlag) Type() string { return "label" }

// labelsText are labels as one types them.
func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, shellWord(key+"="+labels[key]))
	}
	return strings.Join(words, " ")
}
