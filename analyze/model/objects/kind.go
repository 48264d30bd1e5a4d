package objects

// Kind is a kind of driver objects.
type Kind uint8

// Kinds of objects, in the order of reports.
const (
	KindGraphExec        Kind = iota // an executable graph (CUgraphExec)
	KindGraph                        // a graph (CUgraph), also one that stream capture made
	KindEvent                        // an event, also one opened from another process
	KindStream                       // a stream
	KindModule                       // a module
	KindLibrary                      // a library (CUlibrary)
	KindLink                         // the state of a linker (CUlinkState)
	KindContext                      // a context that the program created, or a reference by cuCtxAttach
	KindPrimaryContext               // a reference to the primary context of a device
	KindGreenContext                 // a green context
	KindIPCMemory                    // memory of another process, opened by its IPC handle
	KindMemoryPool                   // a memory pool, also one imported from another process
	KindTexture                      // a texture object
	KindSurface                      // a surface object
	KindExternalMemory               // memory imported from another API
	KindSemaphore                    // a semaphore imported from another API
	KindGraphicsResource             // a buffer or an image registered from OpenGL
	NumKinds                         // number of kinds
)

// kindTraits are the properties of a kind.
type kindTraits struct {
	name, plural string
	// withContext is set if the end of the context in which an object was created ends the object. The
	// documentation of cuCtxDestroy lists these types. Graphs, executable graphs, libraries and pools
	// are not among them.
	withContext bool
	// counted is set if one handle may be created several times and must be destroyed as often.
	counted bool
}

var traits = [NumKinds]kindTraits{
	KindGraphExec:        {name: "graph exec", plural: "graph execs"},
	KindGraph:            {name: "graph", plural: "graphs"},
	KindEvent:            {name: "event", plural: "events", withContext: true},
	KindStream:           {name: "stream", plural: "streams", withContext: true},
	KindModule:           {name: "module", plural: "modules", withContext: true},
	KindLibrary:          {name: "library", plural: "libraries"},
	KindLink:             {name: "linker", plural: "linkers", withContext: true},
	KindContext:          {name: "context", plural: "contexts", counted: true},
	KindPrimaryContext:   {name: "primary context", plural: "references to primary contexts", counted: true},
	KindGreenContext:     {name: "green context", plural: "green contexts"},
	KindIPCMemory:        {name: "ipc memory", plural: "openings of IPC memory", withContext: true, counted: true},
	KindMemoryPool:       {name: "memory pool", plural: "memory pools"},
	KindTexture:          {name: "texture", plural: "textures", withContext: true},
	KindSurface:          {name: "surface", plural: "surfaces", withContext: true},
	KindExternalMemory:   {name: "external memory", plural: "imports of external memory", withContext: true},
	KindSemaphore:        {name: "semaphore", plural: "external semaphores", withContext: true},
	KindGraphicsResource: {name: "graphics resource", plural: "graphics resources", withContext: true},
}

// String returns the name of the kind in reports, in the singular.
func (k Kind) String() string { return traits[k].name }

// Plural returns the name of several objects of the kind.
func (k Kind) Plural() string { return traits[k].plural }

// IsContext reports whether the objects are contexts, or references to contexts.
func (k Kind) IsContext() bool {
	return k == KindContext || k == KindPrimaryContext || k == KindGreenContext
}

// HasIdentity reports whether the handle identifies one object. A reference to a primary context, and an
// opening of the same IPC memory, have the handle of all others: destroying one ends the latest.
func (k Kind) HasIdentity() bool { return !traits[k].counted }

// callOp is the effect of a call on an object. The order matters at equal times: a handle is free
// before the driver returns it again.
type callOp uint8

const (
	opDestroy    callOp = iota // destroys an object, or drops a reference
	opDestroyAll               // destroys a context with all its references
	opCreate                   // creates an object, or adds a reference
	opEndCapture               // returns the graph of a stream capture
	opCaptureTo                // begins a stream capture into an existing graph
)

// takesEffectAtStart reports whether a call takes effect when it starts, not when it returns. So a
// handle that another thread gets during the call is a new object.
func (o callOp) takesEffectAtStart() bool { return o <= opDestroyAll || o == opCaptureTo }

// callEffect is the effect of a function on objects of a kind.
type callEffect struct {
	kind Kind
	op   callOp
}

// effects are the functions that create or destroy objects, without suffixes such as _ptsz. The
// column ptr has the handle. References to primary contexts have the column device instead.
var effects = map[string]callEffect{
	"cuGraphInstantiate":           {KindGraphExec, opCreate},
	"cuGraphInstantiate_v2":        {KindGraphExec, opCreate},
	"cuGraphInstantiateWithFlags":  {KindGraphExec, opCreate},
	"cuGraphInstantiateWithParams": {KindGraphExec, opCreate},
	"cuGraphExecDestroy":           {KindGraphExec, opDestroy},

	"cuGraphCreate":               {KindGraph, opCreate},
	"cuGraphClone":                {KindGraph, opCreate},
	"cuStreamBeginCaptureToGraph": {KindGraph, opCaptureTo},
	"cuStreamEndCapture":          {KindGraph, opEndCapture},
	"cuGraphDestroy":              {KindGraph, opDestroy},

	"cuEventCreate":        {KindEvent, opCreate},
	"cuIpcOpenEventHandle": {KindEvent, opCreate},
	"cuEventDestroy":       {KindEvent, opDestroy},
	"cuEventDestroy_v2":    {KindEvent, opDestroy},

	"cuStreamCreate":             {KindStream, opCreate},
	"cuStreamCreateWithPriority": {KindStream, opCreate},
	"cuGreenCtxStreamCreate":     {KindStream, opCreate},
	"cuStreamDestroy":            {KindStream, opDestroy},
	"cuStreamDestroy_v2":         {KindStream, opDestroy},

	"cuModuleLoad":          {KindModule, opCreate},
	"cuModuleLoadData":      {KindModule, opCreate},
	"cuModuleLoadDataEx":    {KindModule, opCreate},
	"cuModuleLoadFatBinary": {KindModule, opCreate},
	"cuModuleUnload":        {KindModule, opDestroy},
	"cuLibraryLoadData":     {KindLibrary, opCreate},
	"cuLibraryLoadFromFile": {KindLibrary, opCreate},
	"cuLibraryUnload":       {KindLibrary, opDestroy},
	"cuLinkCreate":          {KindLink, opCreate},
	"cuLinkCreate_v2":       {KindLink, opCreate},
	"cuLinkDestroy":         {KindLink, opDestroy},

	"cuCtxCreate":                  {KindContext, opCreate},
	"cuCtxCreate_v2":               {KindContext, opCreate},
	"cuCtxCreate_v3":               {KindContext, opCreate},
	"cuCtxCreate_v4":               {KindContext, opCreate},
	"cuGLCtxCreate":                {KindContext, opCreate},
	"cuGLCtxCreate_v2":             {KindContext, opCreate},
	"cuVDPAUCtxCreate":             {KindContext, opCreate},
	"cuVDPAUCtxCreate_v2":          {KindContext, opCreate},
	"cuCtxAttach":                  {KindContext, opCreate},
	"cuCtxDetach":                  {KindContext, opDestroy},
	"cuCtxDestroy":                 {KindContext, opDestroyAll},
	"cuCtxDestroy_v2":              {KindContext, opDestroyAll},
	"cuDevicePrimaryCtxRetain":     {KindPrimaryContext, opCreate},
	"cuDevicePrimaryCtxRelease":    {KindPrimaryContext, opDestroy},
	"cuDevicePrimaryCtxRelease_v2": {KindPrimaryContext, opDestroy},
	"cuGreenCtxCreate":             {KindGreenContext, opCreate},
	"cuGreenCtxDestroy":            {KindGreenContext, opDestroy},

	"cuIpcOpenMemHandle":    {KindIPCMemory, opCreate},
	"cuIpcOpenMemHandle_v2": {KindIPCMemory, opCreate},
	"cuIpcCloseMemHandle":   {KindIPCMemory, opDestroy},

	"cuMemPoolCreate":                    {KindMemoryPool, opCreate},
	"cuMemPoolImportFromShareableHandle": {KindMemoryPool, opCreate},
	"cuMemPoolDestroy":                   {KindMemoryPool, opDestroy},

	"cuTexObjectCreate":            {KindTexture, opCreate},
	"cuTexObjectDestroy":           {KindTexture, opDestroy},
	"cuSurfObjectCreate":           {KindSurface, opCreate},
	"cuSurfObjectDestroy":          {KindSurface, opDestroy},
	"cuImportExternalMemory":       {KindExternalMemory, opCreate},
	"cuDestroyExternalMemory":      {KindExternalMemory, opDestroy},
	"cuImportExternalSemaphore":    {KindSemaphore, opCreate},
	"cuDestroyExternalSemaphore":   {KindSemaphore, opDestroy},
	"cuGraphicsGLRegisterBuffer":   {KindGraphicsResource, opCreate},
	"cuGraphicsGLRegisterImage":    {KindGraphicsResource, opCreate},
	"cuGraphicsUnregisterResource": {KindGraphicsResource, opDestroy},
}
