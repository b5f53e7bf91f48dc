"""refitcheck's shim of SGLang: every module below comes from `fakes.fronts.sglang_shim.loading`."""

from fakes.fronts.sglang_shim import loading

loading.become(globals())
