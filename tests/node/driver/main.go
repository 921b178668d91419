// Command driver is a driver of devices that are nothing: it publishes some for its node, and says which claims kubelet
// has it prepare and unprepare, one line each.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type driver struct{}

func (driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var devices []kubeletplugin.Device
		for _, each := range claim.Status.Allocation.Devices.Results {
			fmt.Println("prepared", claim.Namespace+"/"+claim.Name, each.Device)
			devices = append(devices, kubeletplugin.Device{Requests: []string{each.Request}, PoolName: each.Pool, DeviceName: each.Device})
		}
		prepared[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return prepared, nil
}

func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	gone := map[types.UID]error{}
	for _, claim := range claims {
		fmt.Println("unprepared", claim.Namespace+"/"+claim.Name)
		gone[claim.UID] = nil
	}
	return gone, nil
}

func (driver) HandleError(_ context.Context, err error, message string) {
	fmt.Println("error", message, err)
}

func (driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return ctx.Err()
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "what leads to the API server")
	node := flag.String("node", "", "the name of the node")
	name := flag.String("name", "", "the name of the driver")
	kubelet := flag.String("kubelet", "", "kubelet's folder")
	count := flag.Int("devices", 2, "how many devices there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(*kubelet, "plugins", *name)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{},
		kubeletplugin.DriverName(*name), kubeletplugin.NodeName(*node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.HealthService(false))
	if err != nil {
		return err
	}
	defer helper.Stop()
	var devices []resourceapi.Device
	for number := range *count {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", number)})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{*node: pool}}); err != nil {
		return err
	}
	fmt.Println("published", *count)
	<-ctx.Done()
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
