//! Where fields are in V8's objects, and the numbers of their types.

use std::fmt::{self, Display, Formatter};

use crate::runtimes::{HAS_V8, RuntimeBytes, add_runtime};

/// A version of V8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    /// 12 in 12.4.254.
    pub major: i32,
    /// 4 in 12.4.254.
    pub minor: i32,
    /// 254 in 12.4.254.
    pub build: i32,
}

impl Display for Version {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.build)
    }
}

/// A build of V8 whose functions cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// Its version.
    pub version: Version,
    /// The symbol that it does not export, without `v8dbg_`. `None`: it is older than V8 9.
    pub missing: Option<&'static str>,
}

/// Offsets and numbers of one build of V8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The build's version.
    pub version: Version,
    /// In a JSFunction: its SharedFunctionInfo.
    pub(super) function_shared: u64,
    /// In a SharedFunctionInfo: 16 bytes that tell one from another, see [`Function::check`](super::Function::check).
    pub(super) shared_check: u64,
    /// In a SharedFunctionInfo: a name, or a ScopeInfo.
    pub(super) shared_name: u64,
    /// In a SharedFunctionInfo: its Script.
    pub(super) shared_script: u64,
    /// In a map: the type of its objects.
    pub(super) map_type: u64,
    pub(super) type_shared: u16,
    pub(super) type_scope: u16,
    pub(super) type_script: u16,
    pub(super) type_bytecode: u16,
    pub(super) type_interpreter_data: u16,
    pub(super) type_code: u16,
    /// The word of a frame that says that it is WebAssembly's. Other frames have their context there. 0: not known.
    pub(super) frame_of_wasm: u16,
    /// A module of WebAssembly, and an instance of one. Up to V8 11 the second type has no known number.
    pub(super) type_module: Option<u16>,
    pub(super) type_instance: Option<u16>,
    /// Strings have smaller types.
    pub(super) first_nonstring: u16,
    /// In a Script.
    pub(super) script_name: u64,
    pub(super) script_source: u64,
    /// In a ScopeInfo: the index of the first word after the counts. If it is 5, the function's begin and end come before it.
    pub(super) scope_first: u64,
    /// In a BytecodeArray: its first instruction.
    pub(super) bytecode_first: u64,
    /// In a BytecodeArray: its table of positions.
    pub(super) bytecode_positions: u64,
    /// Whether the steps of that table have two bits for flags, and no sign.
    pub(super) positions_have_flags: bool,
    /// In a Code: its deoptimisation data, or the BytecodeArray or InterpreterData if Sparkplug made it.
    pub(super) code_data: u64,
    /// In a Code: the table of positions of its instructions.
    pub(super) code_positions: u64,
    /// The words before the instructions of a Code.
    pub(super) code_header: Header,
    /// In a Code: its first instruction, or what leads to it.
    pub(super) code_begin: u64,
    /// In a Code: the bytes of its instructions.
    pub(super) code_size: u64,
    /// In a Code: flags. Some bits of them say what made it.
    pub(super) code_flags: u64,
    pub(super) code_kinds: u32,
    /// Sparkplug made it. Compilers that optimise have greater numbers.
    pub(super) code_baseline: u32,
    /// Elements of the deoptimisation data: the function, literals, which begin with the inlined functions, and where each was inlined.
    pub(super) deoptimization_shared: u64,
    pub(super) deoptimization_literals: u64,
    pub(super) deoptimization_inlined: u64,
    /// Whether the first of those is a wrapper.
    pub(super) has_wrapped_shared: bool,
}

/// The words before the instructions of compiled code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    /// The Code itself.
    Object,
    /// A header with a pointer to the Code.
    Pointer,
}

impl Layout {
    /// The names of the symbols that [`Layout::of`] asks for.
    pub const SYMBOLS: [&str; 36] = [
        "_ZN2v88internal7Version6major_E",
        "_ZN2v88internal7Version6minor_E",
        "_ZN2v88internal7Version6build_E",
        "v8dbg_class_JSFunction__shared__SharedFunctionInfo",
        "v8dbg_class_SharedFunctionInfo__length__uint16_t",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
        "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        "v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
        "v8dbg_class_SharedFunctionInfo__raw_script__Tagged_Object_",
        "v8dbg_class_Map__instance_type__uint16_t",
        "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
        "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
        "v8dbg_type_Script__SCRIPT_TYPE",
        "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE",
        "v8dbg_type_InterpreterData__INTERPRETER_DATA_TYPE",
        "v8dbg_type_Code__CODE_TYPE",
        "v8dbg_frametype_WasmFrame",
        "v8dbg_type_WasmModuleObject__WASM_MODULE_OBJECT_TYPE",
        "v8dbg_type_WasmInstanceObject__WASM_INSTANCE_OBJECT_TYPE",
        "v8dbg_FirstNonstringType",
        "v8dbg_class_Script__name__Object",
        "v8dbg_class_Script__source__Object",
        "v8dbg_scopeinfo_idx_first_vars",
        "v8dbg_class_BytecodeArray__data__uintptr_t",
        "v8dbg_class_Code__instruction_start__uintptr_t",
        "v8dbg_class_Code__instruction_start__Address",
        "v8dbg_class_Code__instruction_size__int",
        "v8dbg_class_Code__flags__uint32_t",
        "v8dbg_CodeKindFieldMask",
        "v8dbg_CodeKindBaseline",
        "v8dbg_DeoptimizationDataSharedFunctionInfoIndex",
        "v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex",
        "v8dbg_DeoptimizationDataLiteralArrayIndex",
        "v8dbg_DeoptimizationDataInliningPositionsIndex",
    ];

    /// Makes the layout of a build. `value` returns the number that a symbol leads to.
    ///
    /// # Errors
    ///
    /// If a number is missing that no table has, or if the build is older than V8 9.
    pub fn of(value: impl Fn(&str) -> Option<i32>) -> Result<Layout, Unfit> {
        let [major, minor, build, ..] = Layout::SYMBOLS.map(|symbol| value(symbol).unwrap_or_default());
        let version = Version { major, minor, build };
        if version.major < 9 {
            return Err(Unfit { version, missing: None });
        }
        let number = |name: &str| value(&format!("v8dbg_{name}")).and_then(|number| u16::try_from(number).ok());
        let offset = |names: &[&str]| names.iter().find_map(|name| number(name)).map(u64::from);
        let unfit = |name: &'static str| Unfit { version, missing: Some(name) };
        let must = |name: &'static str| number(name).ok_or(unfit(name));
        let must_be_at = |names: &[&'static str]| offset(names).ok_or(unfit(names.last().copied().unwrap_or_default()));
        let wrapped = number("DeoptimizationDataWrappedSharedFunctionInfoIndex");
        let is_from = |major, minor| (version.major, version.minor) >= (major, minor);
        Ok(Layout {
            version,
            function_shared: must_be_at(&["class_JSFunction__shared__SharedFunctionInfo"])?,
            shared_check: must_be_at(&["class_SharedFunctionInfo__length__uint16_t"])?,
            shared_name: must_be_at(&[
                "class_SharedFunctionInfo__name_or_scope_info__Object",
                "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
                "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
            ])?,
            shared_script: must_be_at(&[
                "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
                "class_SharedFunctionInfo__script__Tagged_HeapObject_",
                "class_SharedFunctionInfo__raw_script__Tagged_Object_",
            ])?,
            map_type: must_be_at(&["class_Map__instance_type__uint16_t"])?,
            type_shared: must("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            type_scope: must("type_ScopeInfo__SCOPE_INFO_TYPE")?,
            type_script: must("type_Script__SCRIPT_TYPE")?,
            type_bytecode: must("type_BytecodeArray__BYTECODE_ARRAY_TYPE")?,
            type_interpreter_data: must("type_InterpreterData__INTERPRETER_DATA_TYPE")?,
            type_code: must("type_Code__CODE_TYPE")?,
            // A small integer.
            frame_of_wasm: number("frametype_WasmFrame").map_or(0, |kind| kind << 1),
            type_module: number("type_WasmModuleObject__WASM_MODULE_OBJECT_TYPE"),
            type_instance: number("type_WasmInstanceObject__WASM_INSTANCE_OBJECT_TYPE"),
            first_nonstring: must("FirstNonstringType")?,
            script_name: must_be_at(&["class_Script__name__Object"])?,
            // Not exported by 9.4, which has it at 8 like all others.
            script_source: offset(&["class_Script__source__Object"]).unwrap_or(8),
            scope_first: u64::from(must("scopeinfo_idx_first_vars")?),
            // Not exported by 9.4.
            bytecode_first: offset(&["class_BytecodeArray__data__uintptr_t"]).unwrap_or(54),
            // Never exported. The table came to the third place of the header in 12.3.97; before that there were other orders for some months.
            bytecode_positions: if is_from(12, 4) { 24 } else { 32 },
            // 13.6 has no flags, 14.1 has them; no Node.js has a version between.
            positions_have_flags: is_from(14, 0),
            code_data: if is_from(12, 0) { 8 } else { 16 },
            code_positions: if is_from(12, 0) { 16 } else { 24 },
            code_header: if is_from(11, 1) { Header::Pointer } else { Header::Object },
            // 11.3 exports neither this nor the size, 9.4 nothing of what follows.
            code_begin: offset(&["class_Code__instruction_start__uintptr_t", "class_Code__instruction_start__Address"])
                .unwrap_or(40),
            code_size: offset(&["class_Code__instruction_size__int"]).unwrap_or(56),
            code_flags: offset(&["class_Code__flags__uint32_t"]).unwrap_or(48),
            code_kinds: number("CodeKindFieldMask").unwrap_or(15).into(),
            code_baseline: number("CodeKindBaseline").unwrap_or(11).into(),
            deoptimization_shared: wrapped.or(number("DeoptimizationDataSharedFunctionInfoIndex")).unwrap_or(6).into(),
            deoptimization_literals: number("DeoptimizationDataLiteralArrayIndex").unwrap_or(2).into(),
            deoptimization_inlined: number("DeoptimizationDataInliningPositionsIndex").unwrap_or(7).into(),
            has_wrapped_shared: wrapped.is_some(),
        })
    }

    /// Adds V8 to the runtimes of a process.
    pub fn add_to(&self, runtime: &mut RuntimeBytes) {
        let offset = |offset| u16::try_from(offset).unwrap_or(0);
        let fields = [offset(self.function_shared), offset(self.shared_check), self.frame_of_wasm].map(u16::to_ne_bytes);
        let behind = add_runtime(runtime, HAS_V8);
        behind.iter_mut().zip(fields.as_flattened()).for_each(|(place, byte)| *place = *byte);
    }

    /// Converts the word that the interpreter keeps in its frame, a distance from the tagged pointer to the BytecodeArray, to a place in the
    /// bytecode.
    pub fn place_of(&self, word: u32) -> i32 {
        word.cast_signed().saturating_sub(i32::try_from(self.bytecode_first).unwrap_or(0) - 1)
    }
}
