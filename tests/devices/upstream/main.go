// Command devices answers, for each case on a line of its input, what the allocator of Kubernetes does:
// how many devices each claim gets on the node, or that they can't all be met.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type device struct{ Driver, Pool, Name string }

type request struct {
	Node    *corev1.Node
	Slices  []*resourceapi.ResourceSlice
	Classes []*resourceapi.DeviceClass
	Claims  []*resourceapi.ResourceClaim
	Taken   []device
}

type answer struct {
	Feasible bool   `json:"feasible"`
	Counts   []int  `json:"counts"`
	Error    string `json:"error,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (all classes) List() ([]*resourceapi.DeviceClass, error) { return all, nil }

func (all classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, each := range all {
		if each.Name == name {
			return each, nil
		}
	}
	return nil, fmt.Errorf("device class %s not found", name)
}

// What kube-scheduler of this version has on by itself.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
}

func decide(asked request, cache *cel.Cache) answer {
	taken := sets.New[structured.DeviceID]()
	for _, each := range asked.Taken {
		taken.Insert(structured.MakeDeviceID(each.Driver, each.Pool, each.Name))
	}
	state := structured.AllocatedState{AllocatedDevices: taken}
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, state, classes(asked.Classes), asked.Slices, cache)
	if err != nil {
		return answer{Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, asked.Node, asked.Claims)
	if err != nil {
		return answer{Error: err.Error()}
	}
	counts := []int{}
	for _, each := range results {
		counts = append(counts, len(each.Devices.Results))
	}
	return answer{Feasible: len(results) == len(asked.Claims), Counts: counts}
}

func main() {
	cache := cel.NewCache(1000, cel.Features{})
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	lines := json.NewDecoder(input)
	for lines.More() {
		var asked request
		if err := lines.Decode(&asked); err != nil {
			panic(err)
		}
		if err := output.Encode(decide(asked, cache)); err != nil {
			panic(err)
		}
	}
}
