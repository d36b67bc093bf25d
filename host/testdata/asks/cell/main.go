// Cell is package asks as a module.
package main

import (
	"github.com/agentcell/agentcell/host/testdata/asks"
	"github.com/agentcell/agentcell/sdk"
)

func init() { sdk.Register(asks.Harness{}) }

func main() {}
